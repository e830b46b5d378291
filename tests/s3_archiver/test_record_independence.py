"""The bytes of a record in a file depend on that record alone, not on its neighbours or on batches."""

from __future__ import annotations

import io
import json
import struct
from collections import Counter
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk import Header, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.engine.converters import Converted, JsonConverter
from sinksdk.topics.kafka.schema_registry import connect
from tests.helpers.registry_server import RegistryServer
from tests.s3_archiver.support import TP, bench, config

WHOLE = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "int"}]}
REAL = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "double"}]}
SMALL = {"type": "record", "name": "R", "fields": [{"name": "n", "type": "float"}]}
NEWER = {
    "type": "record",
    "name": "R",
    "fields": [*REAL["fields"], {"name": "m", "type": "int", "default": 7}],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "x", "type": "string"}]}
WRITTEN: list[tuple[Any, dict[str, Any]]] = [
    (WHOLE, {"n": 1}),
    (REAL, {"n": 2.5}),
    (SMALL, {"n": 1.1}),
    (NEWER, {"n": 3.0, "m": 8}),
    (OTHER, {"x": "a"}),
    (WHOLE, {"n": 4}),
    (REAL, {"n": 5.0}),
]
TOLERANT = {"errors.tolerance": "all", "errors.deadletterqueue.max.share": "1", "flush.size": "1000"}


def framed(schema_id: int, schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + out.getvalue()


def archived(keys: dict[str, str], values: list[bytes], at_once: int, registry: RegistryServer) -> Any:
    converter = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
    settings = config({**TOLERANT, **converter, **keys})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect))
    records = [
        SinkRecord(*TP, offset=offset, value=value, key=b"k", timestamp=1)
        for offset, value in enumerate(values)
    ]
    for begin in range(0, len(records), at_once):
        made.harness.deliver(TP, SinkRecords.of(TP, records[begin : begin + at_once]))
    made.harness.revoke()
    assert made.committed() == len(records)
    return {key.rpartition("/")[2]: made.s3.data(key) for key in made.visible() if "_sinksdk" not in key}


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_a_json_line_does_not_depend_on_other_records(at_once: int) -> None:
    registry = RegistryServer()
    with registry.running():
        values = [
            framed(registry.register("v", json.dumps(schema)), schema, value) for schema, value in WRITTEN
        ]
        found = archived({"format.class": "JsonFormat"}, values, at_once, registry)
    assert found == {
        "orders+0+0000000000.json": b'{"n":1}\n{"n":2.5}\n{"n":1.1}\n{"n":3.0,"m":8}\n{"x":"a"}\n{"n":4}\n{"n":5.0}\n'
    }


@pytest.mark.parametrize("at_once", [1, 2, 7])
def test_a_parquet_row_does_not_depend_on_other_records(at_once: int) -> None:
    registry = RegistryServer()
    with registry.running():
        values = [
            framed(registry.register("v", json.dumps(schema)), schema, value) for schema, value in WRITTEN
        ]
        found = archived({"format.class": "ParquetFormat"}, values, at_once, registry)
    rows = {name[9:19]: pq.read_table(io.BytesIO(data)).to_pylist() for name, data in found.items()}
    assert rows == {
        "0000000000": [{"n": 1}, {"n": 4}],
        "0000000001": [{"n": 2.5}, {"n": 5.0}],
        "0000000002": [{"n": pytest.approx(1.1)}],
        "0000000003": [{"n": 3.0, "m": 8}],
        "0000000004": [{"x": "a"}],
    }


@pytest.mark.parametrize("keys", [{}, {"store.kafka.keys": "true", "key.converter": "string"}])
def test_a_datum_that_does_not_match_its_schema_does_not_affect_others(keys: dict[str, str]) -> None:
    registry = RegistryServer()
    with registry.running():
        number = registry.register("v", json.dumps(OTHER))
        good = [framed(number, OTHER, {"x": text}) for text in ("a", "b", "c", "d")]
        values = [good[0], good[1][:-1], good[1] + b"stray", good[2], good[3][:5] + b"\x03", good[3]]
        found = archived({"format.class": "AvroFormat", **keys}, values, 10, registry)
    data = found["orders+0+0000000000.avro"]
    assert [row["x"] for row in fastavro.reader(io.BytesIO(data))] == ["a", "b", "c", "d"]


def envelope(schema: Any, payload: Any) -> bytes:
    return json.dumps({"schema": schema, "payload": payload}).encode()


def structure(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"field": name, **kind} for name, kind in fields.items()]}


INT, TEXT = {"type": "int32"}, {"type": "string"}
MAYBE_INT, MAYBE_TEXT = INT | {"optional": True}, TEXT | {"optional": True}
POOL = [
    None,
    b"",
    b"{",
    envelope(None, None),
    envelope(None, {"a": 1}),
    envelope(MAYBE_INT, None),
    envelope(MAYBE_TEXT, None),
    envelope(INT, 5),
    envelope(TEXT, "x"),
    envelope(INT, "x"),
    envelope(structure(a=INT), {"a": 1}),
    envelope(structure(a=MAYBE_INT), {"a": None}),
    envelope(structure(a=MAYBE_INT, b=MAYBE_TEXT), {"a": 2, "b": "x"}),
    envelope(structure(a={"type": "double"}), {"a": 1.1}),
    envelope(structure(a=structure(b=INT)), {"a": {"b": 1}}),
    envelope(structure(a=structure(b=INT)) | {"optional": True}, None),
]
TRANSFORM = "org.apache.kafka.connect.transforms"
CHAINS: dict[str, dict[str, str]] = {
    "no transform": {},
    "HoistField": {"type": f"{TRANSFORM}.HoistField$Value", "field": "h"},
    "ExtractField": {"type": f"{TRANSFORM}.ExtractField$Value", "field": "a"},
    "Flatten": {"type": f"{TRANSFORM}.Flatten$Value"},
    "InsertField": {
        "type": f"{TRANSFORM}.InsertField$Value",
        "static.field": "s",
        "static.value": "x",
    },
    "Cast": {"type": f"{TRANSFORM}.Cast$Value", "spec": "a:string"},
    "ReplaceField": {"type": f"{TRANSFORM}.ReplaceField$Value", "renames": "a:c"},
}
CHOSEN = {
    "transforms.t.predicate": "p",
    "predicates": "p",
    "predicates.p.type": f"{TRANSFORM}.predicates.HasHeaderKey",
    "predicates.p.name": "chosen",
}


def rows_of(name: str, data: bytes) -> list[Any]:
    if name.endswith(".json"):
        return data.splitlines()
    if name.endswith(".avro"):
        reader = fastavro.reader(io.BytesIO(data))
        return [(json.dumps(reader.writer_schema), repr(row)) for row in reader]
    table = pq.read_table(io.BytesIO(data))
    return [(str(table.schema.remove_metadata()), repr(row)) for row in table.to_pylist()]


def rows_in_files(keys: dict[str, str], records: list[tuple[bytes | None, bool]]) -> Counter[Any]:
    settings = config({**TOLERANT, **keys, "behavior.on.null.values": "ignore"})
    made = bench(settings=settings, options=EngineOptions.of(settings, connect))
    batch = [
        SinkRecord(
            *TP,
            offset=offset,
            value=value,
            key=b"k",
            timestamp=1,
            headers=(Header("chosen", b""),) if is_chosen else (),
        )
        for offset, (value, is_chosen) in enumerate(records)
    ]
    made.harness.deliver(TP, SinkRecords.of(TP, batch))
    made.harness.revoke()
    assert made.committed() == len(records)
    return Counter(
        row for key in made.visible() if "_sinksdk" not in key for row in rows_of(key, made.s3.data(key))
    )


@pytest.mark.parametrize("has_predicate", [False, True], ids=["all", "some"])
@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("name", ["JsonFormat", "AvroFormat", "ParquetFormat"])
def test_a_transformed_record_does_not_depend_on_other_records(
    name: str, chain: str, has_predicate: bool
) -> None:
    keys = {
        "format.class": name,
        "value.converter": "json",
        "value.converter.schemas.enable": "true",
        **{f"transforms.t.{key}": text for key, text in CHAINS[chain].items()},
        **({"transforms": "t"} if CHAINS[chain] else {}),
        **(CHOSEN if has_predicate and CHAINS[chain] else {}),
    }
    records = [(value, row % 3 == 1) for row, value in enumerate([*POOL, *POOL[::-1], *POOL[::3]])]
    alone = {record: rows_in_files(keys, [record]) for record in set(records)}
    assert rows_in_files(keys, records) == sum((alone[record] for record in records), Counter())
    assert any(alone.values())


@pytest.mark.parametrize(
    ("keys", "puts"),
    [
        ({"format.class": "JsonFormat"}, 1),
        ({"format.class": "ParquetFormat"}, len(WRITTEN)),
        (
            {
                "format.class": "JsonFormat",
                "partitioner.class": "FieldPartitioner",
                "partition.field.name": "n",
            },
            len(WRITTEN),
        ),
    ],
    ids=["lines", "Parquet", "folders by field"],
)
def test_alternating_types_are_one_put_for_json_lines(keys: dict[str, str], puts: int) -> None:
    # A separate put for each run of records of one type cost a millisecond per record.
    registry = RegistryServer()
    with registry.running():
        converter = {"value.converter": "avro", "value.converter.schema.registry.url": registry.url}
        settings = config({**TOLERANT, **converter, **keys})
        made = bench(settings=settings, options=EngineOptions.of(settings, connect))
        records = [
            SinkRecord(*TP, offset, value=framed(registry.register("v", json.dumps(schema)), schema, value))
            for offset, (schema, value) in enumerate(WRITTEN)
        ]
        made.harness.deliver(TP, SinkRecords.of(TP, records))
        made.harness.revoke()
    assert sum(call.name == "put" for call in made.harness.calls) == puts


def test_bad_records_do_not_increase_the_splits_of_a_mixed_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    # Until a bad record is found, the types of its half of the batch are unknown.
    converted = 0
    convert = JsonConverter.convert

    def counting(self: JsonConverter, topic: str, data: pa.Array) -> Converted:
        nonlocal converted
        converted += len(data)
        return convert(self, topic, data)

    monkeypatch.setattr(JsonConverter, "convert", counting)
    keys = {
        "format.class": "JsonFormat",
        "value.converter": "json",
        "value.converter.schema": "STRUCT<a: STRING>",
        "transforms": "c,t",
        "transforms.c.type": f"{TRANSFORM}.Cast$Value",
        "transforms.c.spec": "a:int32",
        **{f"transforms.t.{key}": text for key, text in CHAINS["HoistField"].items()},
        **CHOSEN,
    }
    rows, every = 512, 8
    records = [(b'{"a":"x"}' if row % every == 1 else b'{"a":"1"}', row % 2 == 0) for row in range(rows)]
    assert rows_in_files(keys, records) == {
        b'{"a":1}': rows // 2 - rows // every,
        b'{"h":{"a":1}}': rows // 2,
    }
    assert converted < 4 * rows
