"""Whatever the records and however they are laid out in Arrow: fastavro's bytes."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.coalesce import BatchCoalescer
from sinksdk.connectors.s3_archiver.codecs import codec
from sinksdk.connectors.s3_archiver.container import ContainerWriter
from sinksdk.connectors.s3_archiver.encoder import RecordEncoder
from sinksdk.connectors.s3_archiver.schema import RECORD_SCHEMA, sync_marker
from sinksdk.records import HEADERS_TYPE

MARKER = sync_marker("property")
SCHEMA = fastavro.parse_schema(dict(RECORD_SCHEMA))
RUN = settings(max_examples=200, deadline=None)

Row = dict[str, Any]

longs = st.integers(-(2**63), 2**63 - 1) | st.integers(-70, 70) | st.sampled_from([-1, 8_191, 8_192, 2**48])
milliseconds = st.none() | longs
texts = st.text(max_size=12)
# text, so that it can be laid out as a string column too; lengths around where varints grow
blobs = st.none() | texts.map(str.encode) | st.integers(0, 9_000).map(lambda size: b"v" * size)
header = st.fixed_dictionaries({"key": texts, "value": st.none() | st.binary(max_size=70)})
headers = st.none() | st.lists(header, max_size=3) | header.map(lambda one: [one] * 70)
row = st.fixed_dictionaries(
    {
        "offset": longs,
        "timestamp": milliseconds,
        "timestampType": st.sampled_from([None, -1, 0, 1, 2**31 - 1]),
        "key": blobs,
        "value": blobs,
        "headers": headers,
    }
)
byte_types = st.sampled_from(
    [pa.binary(), pa.large_binary(), pa.binary_view(), pa.string(), pa.large_string()]
)
layouts = st.fixed_dictionaries(
    {
        "timestamp": st.sampled_from([pa.int64(), pa.timestamp("ms", "UTC")]),
        "timestampType": st.sampled_from([pa.int32(), pa.int64()]),
        "key": byte_types,
        "value": byte_types,
        "headers": st.sampled_from([HEADERS_TYPE, pa.large_list(HEADERS_TYPE.value_type)]),
    }
)
partitions = st.builds(TopicPartition, st.text(min_size=1, max_size=80), st.integers(0, 2**31 - 1))


@st.composite
def batches(draw: st.DrawFn) -> tuple[list[Row], pa.RecordBatch]:
    """Rows, and a batch of them: with any column types, perhaps a slice, perhaps without some columns."""
    rows = draw(st.lists(row, max_size=12))
    if draw(st.booleans()) and rows:  # columns that are equal in all rows are encoded in another way
        rows = [{**rows[0], "offset": each["offset"]} for each in rows]
    layout = draw(layouts)
    dropped = draw(st.sets(st.sampled_from(sorted(layout)), max_size=2))
    columns = {"offset": pa.array([each["offset"] for each in rows], pa.int64())}
    for name, kind in layout.items():
        if name not in dropped:
            columns[name] = pa.array([each[name] for each in rows], _plain(kind)).cast(kind)
    start = draw(st.integers(0, len(rows)))
    stop = draw(st.integers(start, len(rows)))
    kept = [{**each, **dict.fromkeys(dropped)} for each in rows[start:stop]]
    return kept, pa.RecordBatch.from_pydict(columns).slice(start, stop - start)


def _plain(kind: pa.DataType) -> pa.DataType:
    """A type that arrays of Python's bytes can be made of at once."""
    return (
        kind
        if pa.types.is_nested(kind) or pa.types.is_integer(kind) or pa.types.is_timestamp(kind)
        else pa.binary()
    )


def as_avro(partition: TopicPartition, each: Row) -> Row:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "offset": each["offset"],
        "timestamp": each["timestamp"],
        "timestamp_type": each["timestampType"] or 0,
        "key": each["key"],
        "value": each["value"],
        "headers": each["headers"] or [],
    }


@given(partition=partitions, made=batches())
@RUN
def test_datums_are_fastavros(partition: TopicPartition, made: tuple[list[Row], pa.RecordBatch]) -> None:
    """Each row, found by its borders, is what fastavro writes for the record."""
    rows, batch = made
    encoded = RecordEncoder(partition).encode(batch)
    assert len(encoded) == len(rows)
    for index, each in enumerate(rows):
        expected = io.BytesIO()
        fastavro.schemaless_writer(expected, SCHEMA, as_avro(partition, each))
        assert bytes(encoded[index : index + 1].payload) == expected.getvalue()


@given(
    partition=partitions,
    made=st.lists(batches(), max_size=4),
    block_bytes=st.integers(1, 20_000),
    min_rows=st.integers(1, 30),
    max_bytes=st.integers(1, 20_000),
)
@RUN
def test_files_are_fastavros(
    partition: TopicPartition,
    made: list[tuple[list[Row], pa.RecordBatch]],
    block_bytes: int,
    min_rows: int,
    max_bytes: int,
) -> None:
    """Coalesced, encoded and cut into blocks, the whole file is the one that fastavro writes."""
    coalescer, encoder = BatchCoalescer(min_rows, max_bytes), RecordEncoder(partition)
    writer = ContainerWriter(RECORD_SCHEMA, codec("null"), {"topic": b"t"}, MARKER, block_bytes)
    pieces = [writer.header()]
    ready = [batch for _, given_batch in made for batch in coalescer.add(given_batch)]
    for batch in [*ready, *coalescer.flush()]:
        pieces.extend(bytes(piece) for piece in writer.append(encoder.encode(batch)))
    pieces.extend(bytes(piece) for piece in writer.finish())

    expected = io.BytesIO()
    fastavro.writer(
        expected,
        dict(RECORD_SCHEMA),
        [as_avro(partition, each) for rows, _ in made for each in rows],
        sync_interval=block_bytes,
        metadata={"topic": "t"},
        sync_marker=MARKER,
    )
    assert b"".join(pieces) == expected.getvalue()
    assert writer.records == sum(len(rows) for rows, _ in made)
