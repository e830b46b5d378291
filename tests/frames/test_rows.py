"""A DataFrame's columns as records, and whole rows as JSON."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from sinksdk import ConfigException, Header, SinkRecord, TopicPartition
from sinksdk.frames.rows import as_records, check_columns, row_as_json
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS

P = TopicPartition("t", 3)
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def records(*batches: pa.RecordBatch, start: int = 0) -> list[SinkRecord]:
    return [record for some in as_records(batches, P, start) for record in some]


def test_columns_of_a_record_are_taken_as_they_are() -> None:
    """Key, value, headers and timestamp; texts become their UTF-8 bytes; offsets go on over batches."""
    batch = pa.RecordBatch.from_arrays(
        [
            pa.array(["k", None]),
            pa.array([b"v", None], pa.binary()),
            pa.array([[{"key": "h", "value": b"1"}], None], HEADERS_TYPE),
            pa.array([NOON, None], pa.timestamp("us", tz="Europe/Berlin")),
        ],
        names=["key", "value", "headers", "timestamp"],
    )
    found = records(batch, batch.slice(0, 0), batch.slice(0, 1), start=10)
    first = SinkRecord("t", 3, 10, b"k", b"v", int(NOON.timestamp() * 1000), 0, (Header("h", b"1"),))

    assert found[0] == first
    assert found[1] == SinkRecord("t", 3, 11, None, None, None, -1)
    assert [record.offset for record in found] == [10, 11, 12]


def test_records_have_all_columns_in_their_types() -> None:
    """Also those that the DataFrame does not have; a timestamp may be milliseconds."""
    batch = pa.RecordBatch.from_pydict({"value": ["x"], "timestamp": [1_700_000_000_123]})
    (found,) = as_records([batch], P, 5)

    assert dict(zip(found.arrow.schema.names, found.arrow.schema.types, strict=True)) == dict(RECORD_COLUMNS)
    assert found[0].timestamp == 1_700_000_000_123


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (True, pa.bool_(), "true"),
        (7, pa.int8(), "7"),
        (1.5, pa.float64(), "1.5"),
        (math.nan, pa.float64(), '"NaN"'),
        (-math.inf, pa.float32(), '"-Infinity"'),
        (Decimal("1E+3"), pa.decimal128(10, 2), "1000.00"),
        ('ä"\n', pa.string(), '"ä\\"\\n"'),
        (b"\x00\xff", pa.binary(), '"AP8="'),
        (dt.date(2026, 1, 2), pa.date32(), '"2026-01-02"'),
        (NOON, pa.timestamp("us", tz="Europe/Berlin"), '"2026-01-02T12:00:00.123000Z"'),
        (dt.datetime.fromisoformat("2026-01-02T12:00:00"), pa.timestamp("us"), '"2026-01-02T12:00:00"'),
        ([1, None], pa.list_(pa.int64()), "[1,null]"),
        ({"a": 1, "b": None}, pa.struct([("a", pa.int64()), ("b", pa.int64())]), '{"a":1}'),
        ([("x", 1)], pa.map_(pa.string(), pa.int64()), '{"x":1}'),
        ([(2, 1)], pa.map_(pa.int64(), pa.int64()), '{"2":1}'),
    ],
    ids=str,
)
def test_a_value_in_json(value: object, kind: pa.DataType, text: str) -> None:
    """As Spark's to_json writes it; times in UTC."""
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind), pa.array([1, 2])], names=["c", "id"])
    whole, without = row_as_json(batch).to_pylist()

    assert whole.decode() == f'{{"c":{text},"id":1}}'
    assert without == b'{"id":2}'
    assert json.loads(whole)["id"] == 1


def test_a_row_without_a_column_value_is_a_record_whose_value_is_json() -> None:
    """The whole row, a column 'key' included; the record has no key."""
    (found,) = records(pa.RecordBatch.from_pydict({"key": ["k"], "n": [1]}))

    assert (found.key, found.value) == (None, b'{"key":"k","n":1}')


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"value": pa.int64()}, "column 'value' is int64, and must be a string or binary: cast it"),
        ({"key": pa.bool_(), "value": pa.string()}, "column 'key' is bool, and must be a string or binary"),
        ({"value": pa.string(), "headers": pa.string()}, "column 'headers' is string, and must be an array"),
        ({"value": pa.string(), "timestamp": pa.timestamp("us")}, "must be a timestamp with time zone"),
        ({"value": pa.string(), "a": pa.int64(), "b": pa.int64()}, "columns a, b would be left out"),
        ({"a": pa.duration("us")}, "column 'a' cannot be written as JSON, it holds duration"),
        ({"a": pa.list_(pa.duration("us"))}, "column 'a' cannot be written as JSON, it holds duration"),
    ],
)
def test_columns_that_cannot_be_written(columns: dict[str, pa.DataType], says: str) -> None:
    """Each with its type and what to do, before anything runs."""
    with pytest.raises(ConfigException, match=says):
        check_columns(pa.schema(columns))


def test_what_kafkas_source_brings_can_be_written() -> None:
    """All of its columns; topic, partition and offset are new ones here."""
    kafka = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestampType": pa.int32(),
        "headers": HEADERS_TYPE,
    }
    check_columns(pa.schema(kafka))
