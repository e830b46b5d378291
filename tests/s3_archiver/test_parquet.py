from __future__ import annotations

import io
import itertools
from collections.abc import Iterable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sinksdk import ConfigException, Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Format
from sinksdk.connectors.s3_archiver.formats.parquet import CODECS, RecordParquet, ValueParquet
from sinksdk.records import RECORD_COLUMNS

FLIGHTS = TopicPartition("flights", 3)
HEADER = FileHeader(FLIGHTS, 7, "archive", 2, Archived(1, 10, 7))
DELAY = pa.struct([("carrier", pa.string()), ("delay", pa.float64())])


def record(offset: int, **fields: Any) -> SinkRecord:
    return SinkRecord(FLIGHTS.topic, FLIGHTS.partition, offset, **fields)


MIXED = [
    record(
        7, key=b"k", value=b"v", timestamp=1_700_000_000_123, headers=(Header("a", b"1"), Header("a", None))
    ),
    record(9, key=None, value=b"", timestamp=None, timestamp_type=-1),
    record(70_000, key=b"", value=None, timestamp=-1, timestamp_type=1, headers=(Header("b", None),)),
    record(70_001, key=b"x" * 64, value=b"y" * 8_192, timestamp=-86_400_000, headers=(Header("", b""),)),
]


def columns(records: Iterable[SinkRecord]) -> pa.RecordBatch:
    return SinkRecords.of(FLIGHTS, list(records)).arrow


def values(rows: list[Any], kind: pa.DataType = DELAY, first: int = 0) -> pa.RecordBatch:
    offsets = pa.array(range(first, first + len(rows)), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, pa.array(rows, kind)], names=["offset", "value"])


def file(written: Format[Any], batches: Iterable[pa.RecordBatch], kind: object = None) -> bytes:
    content = written.begin(HEADER, "key", kind)
    pieces = [bytes(piece) for piece in content.header()]
    for batch in batches:
        pieces += map(bytes, content.append(written.encode(FLIGHTS, batch).rows))
    pieces += map(bytes, content.finish())
    assert content.buffered == 0
    return b"".join(pieces)


def in_file(data: bytes) -> list[dict[str, Any]]:
    table = pq.read_table(io.BytesIO(data))
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def as_row(one: SinkRecord) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "offset": one.offset,
        "timestamp": one.timestamp,
        "timestamp_type": one.timestamp_type,
        "key": one.key,
        "value": one.value,
        "headers": [header._asdict() for header in one.headers],
    }


def test_a_row_contains_the_whole_record() -> None:
    assert in_file(file(RecordParquet(), [columns(MIXED)])) == [as_row(one) for one in MIXED]


def test_unread_columns_are_null() -> None:
    batch = columns(MIXED).select(["offset"])
    assert in_file(file(RecordParquet(), [batch])) == [
        as_row(record(one.offset, timestamp=None, timestamp_type=0)) for one in MIXED
    ]


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_timestamps_are_milliseconds_rounded_down(unit: str) -> None:
    ticks = {"s": 1, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    moments = pa.array([-ticks - 1, ticks, None], pa.timestamp(unit, "UTC"))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([0, 1, 2], pa.int64()), moments], names=["offset", "timestamp"]
    )
    expected = {"s": [-2_000, 1_000, None]}.get(unit, [-1_001, 1_000, None])
    assert [row["timestamp"] for row in in_file(file(RecordParquet(), [batch]))] == expected


def test_a_header_without_a_key_makes_a_bad_record_and_others_are_written() -> None:
    # Parquet could hold this column, but it is not a column of Kafka's records.
    batch = columns(MIXED)
    headers = pa.array(
        [[{"key": None, "value": b"1"}], [], [{"key": "a", "value": None}], []], RECORD_COLUMNS["headers"]
    )
    batch = batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)
    encoded = RecordParquet().encode(FLIGHTS, batch)

    assert list(encoded.bad) == [0]
    assert "flights-3: the record at offset 7 has a header without a key" in str(encoded.bad[0])
    assert encoded.rows.batch.column("offset").to_pylist() == [9, 70_000, 70_001]


def test_a_row_of_a_value_has_its_fields() -> None:
    kind = pa.struct([("a", pa.int32()), ("b", pa.struct([("c", pa.list_(pa.string()))]))])
    rows = [{"a": 1, "b": {"c": ["x", None]}}, {"a": None, "b": None}]
    data = file(ValueParquet("zstd"), [values(rows, kind)], kind)

    assert in_file(data) == rows
    assert pq.read_schema(io.BytesIO(data)).types == [kind.field(0).type, kind.field(1).type]


def test_a_null_value_is_a_bad_record() -> None:
    found = ValueParquet().kinds(FLIGHTS, values([{"carrier": "UA", "delay": 1.0}, None], first=5))
    assert found.kinds == [DELAY]
    assert found.codes.tolist() == [0, -1]
    assert "flights-3: the record at offset 6 cannot be archived: it has no value" in str(found.bad[1])


def test_a_null_value_can_be_left_out() -> None:
    left_out = ValueParquet(nulls="ignore")

    assert left_out.kinds(FLIGHTS, values([{"carrier": "UA", "delay": 1.0}, None])).bad == {1: None}
    assert left_out.kinds(FLIGHTS, values([None, None], pa.binary())).bad == {0: None, 1: None}


def test_bytes_without_a_converter_are_a_configuration_error() -> None:
    # Otherwise each record of the topic would become a dead letter.
    untyped = ValueParquet(gives_types=False)

    untyped.learn(values([None], pa.binary()))
    with pytest.raises(ConfigException, match=r"set 'value.converter' to Avro's"):
        untyped.learn(values([b"{}"], pa.binary()))
    ValueParquet().learn(values([b"{}"], pa.binary()))


@pytest.mark.parametrize(
    ("kind", "value", "problem"),
    [
        (pa.binary(), b"{}", "its value is of type binary, but a row of a Parquet file is a structure"),
        (pa.null(), None, "it has no value"),
        (pa.struct([]), {}, "its value is a structure without fields"),
        (
            pa.struct([("a", pa.list_(pa.struct([])))]),
            {"a": []},
            "its field 'a' is a structure without fields",
        ),
        (
            pa.struct([("n", pa.int8()), ("a", pa.month_day_nano_interval())]),
            {"n": 1},
            "its field 'a' is of type month_day_nano_interval, which Parquet does not support",
        ),
        (
            pa.struct([("a", pa.decimal128(5, -2))]),
            {"a": 1200},
            "its field 'a' is of type decimal128(5, -2), which Parquet does not support",
        ),
    ],
)
def test_values_that_cannot_be_rows_are_bad_records(kind: pa.DataType, value: object, problem: str) -> None:
    found = ValueParquet().kinds(FLIGHTS, values([value, value], kind))
    assert not found.kinds
    assert problem in str(found.bad[0])
    assert list(found.bad) == [0, 1]


def test_a_type_refused_by_the_parquet_writer_makes_bad_records() -> None:
    lists = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int8()), pa.array([[1]], pa.list_(pa.int8())))
    column = pa.StructArray.from_arrays([lists], names=["a"])
    batch = pa.RecordBatch.from_arrays([pa.array([0, 1], pa.int64()), column], names=["offset", "value"])
    found = ValueParquet().kinds(FLIGHTS, batch)
    assert "nested dictionary type not yet supported" in str(found.bad[1])


def test_the_file_metadata_contain_the_header() -> None:
    metadata = pq.read_metadata(io.BytesIO(file(RecordParquet(), [columns(MIXED)]))).metadata
    texts = {name.decode(): text.decode() for name, text in metadata.items()}
    assert FileHeader.of(texts) == HEADER


@pytest.mark.parametrize(
    ("codec", "extension"),
    [("none", ".parquet"), ("snappy", ".snappy.parquet"), ("gzip", ".gz.parquet"), ("zstd", ".zstd.parquet")],
)
def test_the_extension_states_the_codec(codec: str, extension: str) -> None:
    assert RecordParquet(codec).extension == extension


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_compresses_the_rows(codec: str) -> None:
    if codec not in ("none", "lz4") and not pa.Codec.is_available(codec):
        with pytest.raises(ConfigException, match=r"'parquet\.codec'"):
            RecordParquet(codec)
        return
    many = [record(offset, value=b"same " * 100) for offset in range(500)]
    data = file(RecordParquet(codec), [columns(many)])
    assert [row["value"] for row in in_file(data)] == [b"same " * 100] * 500
    assert (len(data) < 60_000) == (codec != "none")


def test_a_row_group_is_written_at_its_size_limit() -> None:
    written = RecordParquet(row_group_bytes=100_000)
    content = written.begin(HEADER, "key", None)
    pieces = list(map(bytes, content.header()))
    sizes = []
    for first in range(0, 100, 10):
        rows = written.encode(FLIGHTS, columns(record(first + i, value=b"x" * 4_000) for i in range(10))).rows
        pieces += map(bytes, content.append(rows))
        sizes.append(content.buffered)
    pieces += map(bytes, content.finish())

    assert all(40_000 < size < 100_000 or not size for size in sizes)
    metadata = pq.read_metadata(io.BytesIO(b"".join(pieces)))
    assert [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)] == [
        30,
        30,
        30,
        10,
    ]


@given(st.lists(st.integers(0, 40), max_size=6))
def test_rows_do_not_depend_on_how_batches_are_split(cuts: list[int]) -> None:
    many = [
        record(offset, key=b"%d" % offset, headers=(Header("n", b"%d" % offset),)) for offset in range(40)
    ]
    written = RecordParquet(row_group_bytes=500)
    whole = written.encode(FLIGHTS, columns(many)).rows
    borders = sorted({0, 40, *cuts})
    content = written.begin(HEADER, "key", None)
    pieces = list(map(bytes, content.header()))
    for begin, end in itertools.pairwise(borders):
        pieces += map(bytes, content.append(whole.slice(begin, end)))
    pieces += map(bytes, content.finish())
    assert in_file(b"".join(pieces)) == [as_row(one) for one in many]
