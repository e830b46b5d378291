from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sinksdk import DataException, Header, SinkRecord, SinkRecords, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.formats.encoder import RecordAvro
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA
from sinksdk.connectors.s3_archiver.verify.reading import AvroBlock, AvroFile, decoded

TP = TopicPartition("orders", 7)
CODECS = ["null", "deflate", "snappy", "zstandard", "bzip2", "xz"]

octets = st.none() | st.binary(max_size=20)
headers = st.lists(st.builds(Header, st.text(max_size=5), octets), max_size=3).map(tuple)
rows = st.lists(
    st.tuples(octets, octets, st.none() | st.integers(0, 2**45), st.sampled_from([-1, 0, 1]), headers, st.integers(1, 2**20)),
    min_size=1,
    max_size=12,
)  # fmt: skip


def records_of(drawn: list[Any], first: int = 0) -> list[SinkRecord]:
    offsets = first + np.cumsum([row[5] for row in drawn]) - 1
    return [
        SinkRecord(
            *TP, offset=int(offset), key=key, value=value, timestamp=at, timestamp_type=kind, headers=held
        )
        for offset, (key, value, at, kind, held, _) in zip(offsets, drawn, strict=True)
    ]


def file_of(records: list[SinkRecord], codec: str = "null", block_bytes: int = 100) -> bytes:
    made = RecordAvro(codec, block_bytes=block_bytes)
    header = FileHeader(TP, records[0].offset, "archive", 1, Archived())
    content = made.begin(header, "key", None)
    encoded = made.encode(TP, SinkRecords.of(TP, records).arrow)
    parts = (content.header(), content.append(encoded.rows), content.finish())
    return b"".join(bytes(piece) for part in parts for piece in part)


def columns(data: bytes, partition: TopicPartition = TP) -> list[dict[str, Any]]:
    file = AvroFile(io.BytesIO(data))
    assert file.holds_records
    return pa.Table.from_batches([decoded(block, partition) for block in file.blocks()]).to_pylist()


def milliseconds(moment: datetime | None) -> int | None:
    found = None if moment is None else round(moment.timestamp() * 1000)
    return None if found == -1 else found


@pytest.mark.parametrize("codec", CODECS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=rows, first=st.sampled_from([0, 2**31 - 5, 2**40]))
def test_whole_records_are_decoded_as_fastavro_does(codec: str, drawn: list[Any], first: int) -> None:
    data = file_of(records_of(drawn, first), codec)
    expected = [
        {
            **{name: row[name] for name in ("offset", "timestamp_type", "key", "value", "headers")},
            "timestamp": milliseconds(row["timestamp"]),
        }
        for row in fastavro.reader(io.BytesIO(data))
    ]
    assert columns(data) == expected


# Errors that a reader may raise for a damaged file.
REFUSALS = (ValueError, LookupError, TypeError, ArithmeticError, EOFError, AssertionError, DataException)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn=rows, at=st.integers(0, 10**9), flipped=st.integers(1, 255))
def test_file_with_a_damaged_byte_is_read_or_refused_in_bounded_memory(
    drawn: list[Any], at: int, flipped: int
) -> None:
    # The reader must not trust any size in the file: a MemoryError fails the test.
    data = bytearray(file_of(records_of(drawn)))
    data[at % len(data)] ^= flipped
    with suppress(*REFUSALS):
        columns(bytes(data))


@pytest.mark.parametrize("codec", CODECS)
def test_truncated_file_is_refused_wherever_it_ends(codec: str) -> None:
    # A file that is cut at the end of a block looks like a shorter file; the chain of counts detects it.
    records = [SinkRecord(*TP, offset=n, key=None, value=b"v" * 50, timestamp=1) for n in range(6)]
    data = file_of(records, codec)
    for length in range(len(data)):
        try:
            found = columns(data[:length])
        except REFUSALS:
            continue
        assert len(found) < len(records)


@pytest.mark.parametrize(
    "other", [TopicPartition("orders", 8), TopicPartition("orderz", 7), TopicPartition("order", 7)]
)
def test_record_of_another_partition_is_named(other: TopicPartition) -> None:
    data = file_of([SinkRecord(*TP, offset=41, value=b"v", timestamp=1)])
    with pytest.raises(ValueError, match=r"a record of orders-7 \(offset 41\)"):
        columns(data, other)


@pytest.mark.parametrize("has_sizes", [False, True])
def test_headers_in_several_avro_blocks_are_decoded_in_order(has_sizes: bool) -> None:
    # A writer may divide an array into several blocks, with or without their sizes; fastavro writes one
    # block.
    headers = [
        [(f"k{number}", None if number % 3 == 0 else b"v" * number) for number in range(count)]
        for count in (0, 1, 5, 0, 70)
    ]
    data = b"".join(
        datum(offset) + b"".join(blocks_of(row, 2, has_sizes=has_sizes)) + b"\0"
        for offset, row in enumerate(headers)
    )
    decoded_headers = decoded(AvroBlock(len(headers), data), TP).column("headers").to_pylist()
    assert [[(item["key"], item["value"]) for item in row] for row in decoded_headers] == headers


def datum(offset: int) -> bytes:
    stream = io.BytesIO()
    record = {"topic": TP.topic, "partition": TP.partition, "offset": offset, "timestamp": None}
    record |= {"timestamp_type": 0, "key": None, "value": b"value", "headers": []}
    fastavro.schemaless_writer(stream, dict(RECORD_SCHEMA), record)
    return stream.getvalue()[:-1]


def blocks_of(row: list[tuple[str, bytes | None]], each: int, *, has_sizes: bool) -> Iterator[bytes]:
    for first in range(0, len(row), each):
        some = row[first : first + each]
        items = b"".join(
            zigzag(len(key)) + key.encode() + (b"\0" if value is None else b"\2" + zigzag(len(value)) + value)
            for key, value in some
        )
        yield (zigzag(-len(some)) + zigzag(len(items)) if has_sizes else zigzag(len(some))) + items


def zigzag(number: int) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, {"type": "long"}, number)
    return stream.getvalue()
