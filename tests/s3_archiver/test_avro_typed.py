from __future__ import annotations

import datetime as dt
import io
import json
import re
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from sinksdk import ConfigException
from sinksdk.connectors.s3_archiver.formats.avro_typed import legal_name
from sinksdk.connectors.s3_archiver.formats.avro_value import AvroValues
from sinksdk.values.avro_schema import parse_schema
from tests.s3_archiver.format_support import FIRST, ORDERS, batch, encode, file_of

MOMENT = dt.datetime(2024, 3, 31, 1, 59, 59, 123_000, tzinfo=dt.UTC)


def written(values: list[Any], kind: pa.DataType) -> fastavro.reader:
    format_ = AvroValues(None)
    given = batch(values, kind)
    kinds = format_.kinds(ORDERS, given)
    assert kinds.kinds == [kind]
    encoded = encode(format_, given)
    assert sorted(encoded.bad) == sorted(kinds.bad)
    return fastavro.reader(io.BytesIO(file_of(format_, [encoded.rows], kinds.kinds[0])))


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.bool_(), True, True),
        (pa.int8(), -128, -128),
        (pa.uint16(), 65_535, 65_535),
        (pa.uint32(), 2**32 - 1, 2**32 - 1),
        (pa.int64(), -(2**63), -(2**63)),
        (pa.uint64(), 2**64 - 1, Decimal(2**64 - 1)),
        (pa.float32(), 1.5, 1.5),
        (pa.float64(), float("inf"), float("inf")),
        (pa.large_string(), "ä\n", "ä\n"),
        (pa.binary_view(), b"\xff", b"\xff"),
        (pa.binary(2), b"ab", b"ab"),
        (pa.decimal128(10, 2), Decimal("-1.50"), Decimal("-1.50")),
        (pa.decimal256(60, 30), Decimal("1.5"), Decimal("1.5")),
        (pa.date32(), dt.date(1969, 12, 31), dt.date(1969, 12, 31)),
        (pa.date64(), dt.date(2024, 2, 29), dt.date(2024, 2, 29)),
        (pa.time32("s"), dt.time(1, 2, 3), dt.time(1, 2, 3)),
        (pa.time64("ns"), dt.time(1, 2, 3, 4), dt.time(1, 2, 3, 4)),
        (pa.timestamp("ms", "Europe/Berlin"), MOMENT, MOMENT),
        (pa.timestamp("us", "UTC"), MOMENT, MOMENT),
        (pa.timestamp("us"), MOMENT.replace(tzinfo=None), MOMENT.replace(tzinfo=None)),
        (pa.dictionary(pa.int8(), pa.string()), "a", "a"),
        (pa.list_(pa.int32()), [1, None], [1, None]),
        (pa.large_list(pa.list_(pa.string())), [["a"], None, []], [["a"], None, []]),
        (pa.list_(pa.timestamp("ms", "UTC"), 1), [MOMENT], [MOMENT]),
        (pa.map_(pa.string(), pa.int64()), [("a", 1), ("b", None)], {"a": 1, "b": None}),
        (pa.map_(pa.int32(), pa.string()), [(1, "a")], [{"key": 1, "value": "a"}]),
        (pa.struct({"x": pa.struct({"y": pa.int32()})}), {"x": {"y": 1}}, {"x": {"y": 1}}),
        (pa.struct({}), {}, {}),
        (pa.null(), None, None),
    ],
    ids=str,
)
def test_typed_values_round_trip_through_avro(kind: pa.DataType, value: Any, expected: Any) -> None:
    values = [{"f": value}, {"f": None}, None, {"f": value}]
    found = written(values, pa.struct({"f": kind}))
    assert list(found) == [{"f": expected}, {"f": None}, {"f": expected}]
    format_, given = AvroValues(None), batch(values, pa.struct({"f": kind}))
    tail = encode(format_, given.slice(3))
    assert bytes(tail.rows.payload) == bytes(encode(format_, given).rows.slice(2, 3).payload)


@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.list_(pa.struct({"a": pa.int32()}))], ids=str)
def test_values_without_fields_are_written_to_avro(kind: pa.DataType) -> None:
    # Numbers and lists can be whole values of a file; a text cannot without a registry.
    value = {"string": "a", "int64": 5}.get(str(kind), [{"a": 1}])
    if pa.types.is_string(kind):
        with pytest.raises(ConfigException, match="values are bytes, and AvroFormat needs a schema"):
            AvroValues(None).learn(batch([b"\0\0\0\0\x01"]))
        return
    assert list(written([value], kind)) == [value]


def test_records_have_connects_default_names() -> None:
    inner = pa.struct({"x": pa.int32()})
    schema = json.loads(
        written([{"a": None, "b": None}], pa.struct({"a": inner, "b": inner})).metadata["avro.schema"]
    )
    assert (schema["name"], schema["namespace"]) == ("ConnectDefault", "io.confluent.connect.avro")
    assert [field["type"][1]["name"] for field in schema["fields"]] == ["ConnectDefault2", "ConnectDefault3"]
    assert [(field["type"][0], field["default"]) for field in schema["fields"]] == [("null", None)] * 2


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a_1", "a_1"),
        ("a-b", "a_b"),
        ("a.b", "a_b"),
        ("1a", "x1a"),
        ("a b", "a_b"),
        ("ä", "x_C3_A4"),
        ("", "x"),
    ],
)
def test_illegal_field_names_are_scrubbed_like_in_connect(name: str, expected: str) -> None:
    assert legal_name(name) == expected
    found = written([{name: 1}], pa.struct({name: pa.int32()}))
    assert list(found) == [{expected: 1}]
    assert parse_schema(found.metadata["avro.schema"]).resolved


def test_fields_with_the_same_scrubbed_name_are_refused() -> None:
    kind = pa.struct({"a-b": pa.int32(), "a.b": pa.int32()})
    kinds = AvroValues(None).kinds(ORDERS, batch([{}], kind))
    assert "fields 'a-b', 'a.b' would all be called 'a_b'" in str(kinds.bad[0])


@pytest.mark.parametrize("kind", [pa.duration("s"), pa.month_day_nano_interval()], ids=str)
def test_values_of_types_unsupported_by_avro_are_bad_records(kind: pa.DataType) -> None:
    format_, given = AvroValues(None, nulls="ignore"), batch([{}, None], pa.struct({"f": kind}))
    format_.learn(given)
    kinds = format_.kinds(ORDERS, given)
    assert (kinds.kinds, kinds.codes.tolist(), kinds.bad[1]) == ([], [-1, -1], None)
    assert re.search(f"record at offset {FIRST} cannot be archived: .* written as Avro", str(kinds.bad[0]))


def test_null_values_are_bad_records_or_left_out() -> None:
    given = batch([{"a": 1}, None], pa.struct({"a": pa.int32()}))
    kinds = AvroValues(None).kinds(ORDERS, given)
    assert f"orders-3: the record at offset {FIRST + 1} cannot be archived: it has no value" in str(
        kinds.bad[1]
    )
    ignoring = AvroValues(None, nulls="ignore")
    assert ignoring.kinds(ORDERS, given).bad == encode(ignoring, given).bad == {1: None}
    assert ignoring.kinds(ORDERS, given).codes.tolist() == [0, -1]


@pytest.mark.parametrize(
    ("kind", "value", "schema"), [(pa.binary(), b"\0\0\0\0\x01", "bytes"), (pa.string(), "UA", "string")]
)
def test_unframed_bytes_and_texts_are_archived_as_values(kind: pa.DataType, value: Any, schema: str) -> None:
    format_, given = AvroValues(None, plain=True), batch([value, None], kind)
    format_.learn(given)
    kinds = format_.kinds(ORDERS, given)
    read = fastavro.reader(io.BytesIO(file_of(format_, [encode(format_, given).rows], kinds.kinds[0])))

    assert read.writer_schema == schema
    assert list(read) == [value]
    assert list(kinds.bad) == [1]


def test_each_type_has_its_own_files() -> None:
    format_ = AvroValues(None)
    one, other = (
        format_.kinds(ORDERS, batch([{"a": 1}], pa.struct({"a": kind}))).kinds[0]
        for kind in (pa.int32(), pa.int64())
    )
    again = format_.kinds(ORDERS, batch([{"a": 2}], pa.struct({"a": pa.int32()}))).kinds[0]
    assert one != other
    assert {one: "x"}[again] == "x"
