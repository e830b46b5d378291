from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk import ConfigException, DataException
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.partitioners.avro_fields import AvroFields
from sinksdk.connectors.s3_archiver.partitioners.fields import Field
from sinksdk.connectors.s3_archiver.partitioners.folders import folders_of
from sinksdk.values.avro_schema import parse_schema
from tests.s3_archiver.test_folders import TP, of, valued

META = {
    "type": "record",
    "name": "Meta",
    "namespace": "shop",
    "fields": [
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 3}},
    ],
}
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "numbers", "type": {"type": "array", "items": "double"}},
        {"name": "parent", "type": ["null", "Order"]},
        {"name": "meta", "type": ["null", META]},
        {"name": "again", "type": {"type": "array", "items": "Meta"}},
        {"name": "name", "type": ["null", "string", "long"]},
        {"name": "amount", "type": "double"},
        {"name": "share", "type": "float"},
        {"name": "paid", "type": "boolean"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "big", "type": "long"},
    ],
}
PARSED = fastavro.parse_schema(SCHEMA)
META_VALUES = st.fixed_dictionaries(
    {
        "at": st.none() | st.integers(-(2**60), 2**60),
        "day": st.integers(-1_000_000, 1_000_000),
        "kind": st.sampled_from(["A", "B"]),
        "id": st.binary(min_size=3, max_size=3),
    }
)
ORDERS = st.recursive(
    st.none(),
    lambda parents: st.fixed_dictionaries(
        {
            "tags": st.lists(st.text(max_size=3), max_size=3),
            "counts": st.dictionaries(st.text(max_size=2), st.integers(-(2**63), 2**63 - 1), max_size=2),
            "numbers": st.lists(st.floats(), max_size=3),
            "parent": parents,
            "meta": st.none() | META_VALUES,
            "again": st.lists(META_VALUES, max_size=2),
            "name": st.none() | st.text(max_size=3) | st.integers(-(2**63), 2**63 - 1),
            "amount": st.floats(allow_nan=False),
            "share": st.floats(allow_nan=False, width=32),
            "paid": st.booleans(),
            "price": st.binary(max_size=3),
            "big": st.integers(-(2**63), 2**63 - 1),
        }
    ),
    max_leaves=3,
).filter(lambda value: value is not None)
# The same schemas without logical types, for the same bytes.
PLAIN = fastavro.parse_schema(
    {
        **SCHEMA,
        "fields": [
            *SCHEMA["fields"][:4],
            {"name": "meta", "type": ["null", {**META, "fields": [
                {"name": "at", "type": ["null", "long"]},
                {"name": "day", "type": "int"},
                *META["fields"][2:],
            ]}]},
            *SCHEMA["fields"][5:10],
            {"name": "price", "type": "bytes"},
            SCHEMA["fields"][11],
        ],
    }
)  # fmt: skip


def datum(value: Any, number: int = 7, schema: Any = PLAIN) -> bytes:
    out = io.BytesIO()
    out.write(struct.pack(">bI", 0, number))
    fastavro.schemaless_writer(out, schema, value)
    return out.getvalue()


def column(found: Field, rows: int) -> list[Any]:
    values: list[Any] = [None] * rows
    for places, piece in found.pieces:
        whole = pa.types.is_temporal(piece.type)
        for row, value in zip(
            places.tolist(), piece.cast(_as_number(piece.type)) if whole else piece, strict=True
        ):
            values[row] = value.as_py()
    for row, why in found.bad.items():
        values[row] = why
    return values


def _as_number(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date(kind) else pa.int64()


PATHS = [
    ("name",),
    ("amount",),
    ("share",),
    ("paid",),
    ("big",),
    ("meta", "at"),
    ("meta", "day"),
    ("meta", "kind"),
]


def expected(value: Mapping[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = value
    for name in path:
        found = None if found is None else found[name]
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(ORDERS, min_size=1, max_size=8), st.permutations(PATHS), st.integers(0, 3))
def test_fields_are_read_as_written(values: list[Any], paths: list[tuple[str, ...]], first: int) -> None:
    data = pa.array([datum(value) for value in values], pa.binary())[first:]
    found = AvroFields(paths, lambda _: PARSED).read(data)

    for path, each in zip(paths, found, strict=True):
        assert column(each, len(data)) == [expected(value, path) for value in values[first:]]


GOOD = {
    "tags": [],
    "counts": {},
    "numbers": [],
    "parent": None,
    "meta": {"at": 1_709_209_845_123_456, "day": 19_782, "kind": "B", "id": b"abc"},
    "again": [],
    "name": "ü",
    "amount": 1.5,
    "share": 0.5,
    "paid": True,
    "price": b"\x01",
    "big": 3,
}


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.sampled_from([*PATHS, ("price",), ("tags",)])
)
def test_malformed_values_do_not_affect_other_records(broken: list[bytes], path: tuple[str, ...]) -> None:
    # Any bytes after the framing fail or return a value, and do not change the other records.
    data = [each for some in broken for each in (b"\x00\x00\x00\x00\x07" + some, datum(GOOD))]
    (found,) = AvroFields([path], lambda _: PARSED).read(pa.array(data, pa.binary()))
    values = column(found, len(data))

    assert {row for rows, _ in found.pieces for row in rows.tolist()} | set(found.bad) == set(
        range(len(data))
    )
    if path not in (("price",), ("tags",)):
        assert values[1::2] == [expected(GOOD, path)] * len(broken)


@pytest.mark.parametrize(
    ("data", "path", "why"),
    [
        (None, ("name",), "is null"),
        (b"", ("name",), "does not begin with a zero byte and a schema id"),
        (b"\x01\x00\x00\x00\x07", ("name",), "does not begin with a zero byte and a schema id"),
        (b"\x00\x00\x00\x00\x07\x04", ("name",), "does not match schema 7"),
        (b"\x00\x00\x00\x00\x63", ("name",), "has schema 99: there is none"),
        (datum(GOOD)[:-40], ("amount",), "does not match schema 7"),
        (datum({**GOOD, "name": "x" * 50})[:-60], ("name",), "does not match schema 7"),
        (datum(GOOD), ("nothing",), "has no field 'nothing'"),
        (datum(GOOD), ("meta", "nothing"), "has no field 'meta.nothing'"),
        (datum(GOOD), ("name", "x"), "has no field 'name.x'"),
        (datum(GOOD), ("meta",), "has an object as 'meta'"),
        (datum(GOOD), ("tags",), "has an array as 'tags'"),
        (datum(GOOD), ("price",), "has bytes as 'price'"),
    ],
)
def test_bad_values_are_reported_with_the_reason(data: bytes | None, path: tuple[str, ...], why: str) -> None:
    def schema_of(number: int) -> Any:
        if number != 7:
            raise DataException("there is none")
        return PARSED

    for around in (0, 30):
        good = [datum(GOOD)] * around
        (found,) = AvroFields([path], schema_of).read(pa.array([*good, data, *good], pa.binary()))
        assert why in found.bad[around]


def test_arrays_of_any_length_are_skipped() -> None:
    long = {**GOOD, "tags": ["x"] * 12_000, "numbers": [0.0] * 12_000}
    sized = datum(GOOD).replace(b"\x00\x00\x00\x00\x07\x00", b"\x00\x00\x00\x00\x07\x03\x08\x02a\x02b\x00", 1)
    for path in (("name",), ("meta", "at")):
        (found,) = AvroFields([path], lambda _: PARSED).read(pa.array([datum(GOOD), datum(long), sized]))
        assert column(found, 3) == [expected(GOOD, path)] * 3
        kinds = {piece.type for _, piece in found.pieces}
        assert kinds == {pa.string()} if path == ("name",) else kinds == {pa.timestamp("us")}


def folders(schema_of: Callable[[int], Any] | None) -> Any:
    config = S3ArchiverConfig.model_construct(
        name="a",
        topics=("orders",),
        s3_bucket_name="bucket",
        partitioner_class="FieldAndTimeBasedPartitioner",
        partition_field_name=("meta.kind", "name"),
        path_format="YYYY-MM-dd HH:mm",
        partition_duration_ms=60_000,
        timestamp_extractor="RecordField",
        timestamp_field="meta.at",
        value_converter="avro",
    )
    return folders_of(config, schema_of)


def test_folders_are_named_after_avro_fields() -> None:
    other = {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "name", "type": "int"}, {"name": "meta", "type": META}],
    }
    schemas = {7: PARSED, 8: fastavro.parse_schema(other)}
    data = [
        datum(GOOD),
        datum({"name": 5, "meta": GOOD["meta"]}, 8, schemas[8]),
        datum({**GOOD, "name": 6}),
        None,
    ]
    found = folders(schemas.__getitem__).split(TP, valued(pa.array(data, pa.binary())), 0.0)

    assert of(found) == [f"meta.kind=B/name={name}/2024-02-29 12:30" for name in ("ü", "5", "6")] + [None]


def test_folders_by_avro_fields_need_a_schema_registry() -> None:
    with pytest.raises(ConfigException, match=r"value\.converter\.schema\.registry\.url"):
        folders(None)


@pytest.mark.parametrize("path", [("a",), ("b", "c")])
def test_a_null_field_uses_the_schema_default_for_its_folder(path: tuple[str, ...]) -> None:
    inner = {
        "type": "record",
        "name": "B",
        "fields": [{"name": "c", "type": ["null", {"type": "int", "connect.default": 7}]}],
        "connect.default": {"c": 7},
    }
    fields = [{"name": "a", "type": [{"type": "int", "connect.default": 7}, "null"]}]
    fields += [{"name": "b", "type": ["null", inner]}]
    schema = parse_schema(json.dumps({"type": "record", "name": "R", "fields": fields}), replaces_nulls=True)
    data = [b"\x02\x00", b"\x02\x02\x00", b"\x00\x0a\x02\x02\x0a"]
    values = pa.array([struct.pack(">bI", 0, 1) + datum for datum in data], pa.binary())

    (found,) = AvroFields([path], lambda _: schema).read(values)

    assert not found.bad
    assert {
        row: value
        for rows, column in found.pieces
        for row, value in zip(rows, column.to_pylist(), strict=True)
    } == {
        0: 7,
        1: 7,
        2: 5,
    }
