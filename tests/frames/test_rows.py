from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from sinksdk import ConfigException, DataException, Header, SinkRecord, TopicPartition
from sinksdk.frames.rows import as_records, check_columns
from sinksdk.records import HEADERS_TYPE, RECORD_COLUMNS
from sinksdk.transforms.parts import Part
from sinksdk.values.text import SPARK_JSON, to_json

P = TopicPartition("t", 3)
NULLABLE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
"""Spark's type of headers, with all fields nullable."""
BYTES: dict[Part, str] = {"key": "the sink takes bytes", "value": "the sink takes bytes"}
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, 123_000, tzinfo=dt.UTC)


def records(*batches: pa.RecordBatch, start: int = 0) -> list[SinkRecord]:
    return [record for some in as_records(batches, P, start) for record in some]


def test_key_value_headers_and_timestamp_columns_become_the_record() -> None:
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
def test_typed_value_is_written_as_json(value: object, kind: pa.DataType, text: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([value, None], kind), pa.array([1, 2])], names=["c", "id"])
    (found,) = as_records([batch], P, 0)
    whole, without = to_json(found.arrow.column("value"), SPARK_JSON).to_pylist()

    assert whole == f'{{"c":{text},"id":1}}'
    assert without == '{"id":2}'
    assert json.loads(whole)["id"] == 1


def test_row_without_a_value_column_becomes_the_record_value() -> None:
    batch = pa.RecordBatch.from_pydict({"key": ["k"], "n": [1]})
    (found,) = as_records([batch], P, 0)

    assert (found[0].key, found[0].value) == (None, {"key": "k", "n": 1})
    own = found.arrow.column("value").field("n").buffers()[1]
    assert own.address == batch.column("n").buffers()[1].address


def test_keys_and_values_keep_their_types() -> None:
    (found,) = records(pa.RecordBatch.from_pydict({"key": [7], "value": [[1.5]]}))
    assert (found.key, found.value) == (7, [1.5])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        (
            {"value": pa.duration("us")},
            "column 'value' cannot be written as JSON, because it holds duration.* and the sink takes bytes",
        ),
        ({"value": pa.string(), "headers": pa.string()}, "column 'headers' is string, but must be an array"),
        ({"value": pa.string(), "timestamp": pa.timestamp("us")}, "must be a timestamp with time zone"),
        (
            {"value": pa.string(), "a": pa.int64(), "b": pa.int64()},
            "columns a, b are not written when there is a column 'value'",
        ),
        (
            {"a": pa.duration("us")},
            "column 'a' cannot be written as JSON, because it holds duration.* and the sink takes bytes",
        ),
        (
            {"a": pa.list_(pa.duration("us"))},
            "column 'a' cannot be written as JSON, because it holds duration.* and the sink takes bytes",
        ),
    ],
)
def test_columns_that_cannot_be_written_are_refused(columns: dict[str, pa.DataType], says: str) -> None:
    with pytest.raises(ConfigException, match=says):
        check_columns(pa.schema(columns), BYTES)


@pytest.mark.parametrize("rows", [2, 3])
def test_a_header_without_a_key_is_refused(rows: int) -> None:
    # Regression: a header without a key was a bad record, even where the configuration says that no record
    # can be bad.
    good, bad = [{"key": "h", "value": b"1"}], [{"key": "h", "value": None}, {"key": None, "value": b"2"}]
    batch = pa.RecordBatch.from_pydict(
        {"value": ["a", "b", "c", "d"], "headers": pa.array([good, None, [], bad], NULLABLE)}
    )
    found = as_records([batch.slice(0, rows), batch.slice(rows)], P, 10)

    assert len(next(found)) == rows
    with pytest.raises(
        DataException, match=r"column 'headers' of row 3 of Spark partition 3 \(t-3, offset 13"
    ):
        next(found)


def test_columns_of_typed_parts_may_have_types_without_json() -> None:
    check_columns(pa.schema({"a": pa.duration("us")}), json_of={"key": "the sink takes bytes"})
    with pytest.raises(ConfigException, match="column 'key' cannot"):
        check_columns(
            pa.schema({"key": pa.duration("us"), "value": pa.string()}),
            json_of={"key": "the sink takes bytes"},
        )


def test_columns_of_sparks_kafka_source_can_be_written() -> None:
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
    check_columns(pa.schema(kafka), BYTES)
