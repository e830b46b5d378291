from __future__ import annotations

import io
import random
from typing import Any

import fastavro
import polars as pl
import pytest

from sinksdk import Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.formats.codecs import CODEC_NAMES, codec
from sinksdk.connectors.s3_archiver.formats.container import ContainerWriter
from sinksdk.connectors.s3_archiver.formats.encoder import EncodedRows, RecordEncoder
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, sync_marker

FLIGHTS = TopicPartition("flights", 3)
MARKER = sync_marker("topics/flights/partition=3/flights+3+0000000000.avro")
BLOCK_BYTES = 2_000


def some_records(count: int) -> list[SinkRecord]:
    dice = random.Random(1)  # noqa: S311 - reproducible, nothing secret
    sizes = [dice.choice((0, 10, 100, 1_000, 5_000)) for _ in range(count)]
    return [
        SinkRecord(
            *FLIGHTS,
            offset=offset,
            timestamp=1_700_000_000_000 + offset,
            key=None if size == 0 else b"key-%d" % offset,
            value=dice.randbytes(size),
            headers=(Header("source", b"EWR"),) * (offset % 3),
        )
        for offset, size in enumerate(sizes)
    ]


RECORDS = some_records(300)


def as_rows(records: list[SinkRecord]) -> list[dict[str, Any]]:
    return [
        {
            "topic": r.topic,
            "partition": r.partition,
            "offset": r.offset,
            "timestamp": r.timestamp,
            "timestamp_type": r.timestamp_type,
            "key": r.key,
            "value": r.value,
            "headers": [header._asdict() for header in r.headers],
        }
        for r in records
    ]


def encoded(records: list[SinkRecord]) -> EncodedRows:
    return RecordEncoder(FLIGHTS).encode(SinkRecords.of(FLIGHTS, records).arrow)


def container(name: str = "null", *, block_bytes: int = BLOCK_BYTES, **metadata: bytes) -> ContainerWriter:
    return ContainerWriter(RECORD_SCHEMA, codec(name), metadata, MARKER, block_bytes)


def write(writer: ContainerWriter, *batches: EncodedRows) -> bytes:
    pieces = [*writer.header()]
    for rows in batches:
        pieces.extend(writer.append(rows))
    return b"".join([*pieces, *writer.finish()])


def fastavros(records: list[SinkRecord], block_bytes: int = BLOCK_BYTES, **metadata: str) -> bytes:
    out = io.BytesIO()
    fastavro.writer(
        out,
        dict(RECORD_SCHEMA),
        as_rows(records),
        sync_interval=block_bytes,
        metadata=metadata,
        sync_marker=MARKER,
    )
    return out.getvalue()


def in_batches(rows: EncodedRows, size: int) -> list[EncodedRows]:
    return [rows.slice(start, min(start + size, len(rows))) for start in range(0, len(rows), size)]


@pytest.mark.parametrize("block_bytes", [1, 100, 2_000, 64 * 1024, 10_000_000])
@pytest.mark.parametrize("batch_rows", [1, 7, 100, 300])
def test_files_equal_fastavros_byte_for_byte(block_bytes: int, batch_rows: int) -> None:
    writer = container(block_bytes=block_bytes, topic=b"flights", note="Maß ✈".encode())
    written = write(writer, *in_batches(encoded(RECORDS), batch_rows))
    assert written == fastavros(RECORDS, block_bytes, topic="flights", note="Maß ✈")


@pytest.mark.parametrize("name", CODEC_NAMES)
def test_fastavro_reads_every_codec(name: str) -> None:
    reader = fastavro.reader(io.BytesIO(write(container(name, generation=b"4"), encoded(RECORDS))))
    back = [{**row, "timestamp": round(row["timestamp"].timestamp() * 1_000)} for row in reader]
    assert back == as_rows(RECORDS)
    assert (reader.codec, reader.metadata["generation"]) == (name, "4")
    assert reader.metadata["avro.codec"] == name


@pytest.mark.parametrize("name", ["null", "deflate", "snappy"])
def test_polars_reads_the_codecs_it_knows(name: str) -> None:
    frame = pl.read_avro(io.BytesIO(write(container(name), encoded(RECORDS))))
    columns = ("offset", "key", "value", "headers")
    assert frame.select(columns).rows() == [
        tuple(row[column] for column in columns) for row in as_rows(RECORDS)
    ]


def test_blocks_end_where_they_are_full() -> None:
    blocks = list(fastavro.block_reader(io.BytesIO(write(container(), encoded(RECORDS)))))
    sizes = [len(block.bytes_.getvalue()) for block in blocks]
    assert sum(block.num_records for block in blocks) == len(RECORDS)
    assert all(size >= BLOCK_BYTES for size in sizes[:-1])
    largest_row = encoded(RECORDS).borders[1:] - encoded(RECORDS).borders[:-1]
    assert all(size < BLOCK_BYTES + largest_row.max() for size in sizes)


def test_rows_larger_than_a_block_get_their_own_block() -> None:
    large = [SinkRecord(*FLIGHTS, offset=n, value=b"x" * 10_000) for n in range(4)]
    blocks = fastavro.block_reader(io.BytesIO(write(container(), encoded(large))))
    assert [block.num_records for block in blocks] == [1, 1, 1, 1]


def test_the_writer_counts_records_and_buffered_bytes() -> None:
    writer, rows = container(block_bytes=1_000_000), encoded(RECORDS)
    assert list(writer.append(rows.slice(0, 10))) == []
    assert (writer.records, writer.buffered) == (10, rows.slice(0, 10).nbytes)
    assert list(writer.append(rows.slice(10, 20))) == []
    assert (writer.records, writer.buffered) == (20, rows.slice(0, 20).nbytes)
    assert sum(map(len, writer.finish())) > rows.slice(0, 20).nbytes
    assert (writer.records, writer.buffered) == (20, 0)


def test_pieces_of_the_null_codec_are_views() -> None:
    rows = encoded(RECORDS)
    views = [piece for piece in container().append(rows) if isinstance(piece, memoryview)]
    assert sum(map(len, views)) > 0.9 * rows.nbytes
    assert all(view.obj is rows.data.obj for view in views)


def test_rows_kept_for_later_do_not_hold_their_batch() -> None:
    # The writer copies these rows, so that the batch's memory is freed.
    writer = container(block_bytes=1_000_000)
    rows = encoded(RECORDS[:2])
    list(writer.append(rows))
    assert all(isinstance(piece, bytes) for piece in writer.finish())


def test_a_file_without_records_is_only_a_header() -> None:
    written = write(container("zstandard"), encoded(RECORDS).slice(0, 0))
    assert written == b"".join(container("zstandard").header())
    assert list(fastavro.reader(io.BytesIO(written))) == []


def test_equal_records_produce_equal_bytes() -> None:
    for name in CODEC_NAMES:
        assert write(container(name), encoded(RECORDS)) == write(container(name), encoded(RECORDS))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metadata": {"avro.codec": b"x"}}, r"under 'avro\.' is Avro's own: rename avro\.codec"),
        ({"sync_marker": b"short"}, "16 bytes, this one has 5"),
        ({"block_bytes": 0}, "at least 1 byte, not 0"),
    ],
)
def test_invalid_arguments_are_refused(change: dict[str, Any], message: str) -> None:
    arguments = {"metadata": {}, "sync_marker": MARKER, **change}
    with pytest.raises(ValueError, match=message):
        ContainerWriter(RECORD_SCHEMA, codec("null"), **arguments)
