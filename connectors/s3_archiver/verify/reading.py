"""Read archived files as Arrow columns, with other code than the writer's, whose mistakes it would repeat."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, BinaryIO, Final, NamedTuple, cast

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.formats.columns import Flags, Longs, Octets
from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA, SYNC_BYTES
from sinksdk.values.avro_schema import AvroSchema, as_schema, parse_schema
from sinksdk.values.avro_walk import Fit, walk_block

_MAGIC: Final = b"Obj\x01"
_METADATA: Final = fastavro.parse_schema({"type": "map", "values": "bytes"})
_RAW_DEFLATE: Final = -15  # zlib's window size, negative for "no zlib header and checksum"
_CRC_BYTES: Final = 4
_MOST_BLOCK: Final = 1 << 30  # bytes of the largest block: a longer one is damaged, and would fill the memory
_NO_TIMESTAMP: Final = -1

HEADERS: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
RECORDS: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        # Milliseconds since 1970; null for a record without a timestamp.
        pa.field("timestamp", pa.int64()),
        pa.field("timestamp_type", pa.int32()),
        pa.field("key", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("headers", HEADERS),
    ]
)


class AvroBlock(NamedTuple):
    rows: int
    data: bytes


class AvroFile:
    """Read an Avro object container file forward only. Raises ValueError if it is damaged."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        if self._exactly(len(_MAGIC)) != _MAGIC:
            raise ValueError("it is not an Avro object container file")
        metadata: Any = fastavro.schemaless_reader(
            cast("Any", SimpleNamespace(read=self._exactly)), _METADATA, None
        )
        self._sync = self._exactly(SYNC_BYTES)
        self.metadata: Mapping[str, str] = {
            name: value.decode(errors="replace")
            for name, value in metadata.items()
            if not name.startswith("avro.")
        }
        self.schema: AvroSchema = parse_schema(metadata["avro.schema"].decode())
        name = metadata.get("avro.codec", b"null").decode()
        if name not in _DECOMPRESS:
            raise ValueError(f"it is compressed with '{name}', which is not an Avro codec")
        self._decompress = _DECOMPRESS[name]

    @property
    def holds_records(self) -> bool:
        found = self.schema.resolved
        return (
            isinstance(found, dict)
            and found.get("name") == "sinksdk.Record"
            and [field["name"] for field in found["fields"]] == _FIELDS
        )

    def blocks(self) -> Iterator[AvroBlock]:
        while (rows := self._number()) is not None:
            size = self._number()
            if size is None or rows < 0 or not 0 <= size <= _MOST_BLOCK:
                raise ValueError("it has a block of an impossible size")
            data = self._decompress(self._exactly(size))
            if self._exactly(SYNC_BYTES) != self._sync:
                raise ValueError("it has a block without the sync marker")
            yield AvroBlock(rows, data)

    def _number(self) -> int | None:
        """Read a zigzag varint; None at the file's end."""
        bits, shift = 0, 0
        while byte := self._stream.read(1):
            bits |= (byte[0] & 0x7F) << shift
            if byte[0] < 0x80:  # noqa: PLR2004 - no other byte follows
                return (bits >> 1) ^ -(bits & 1)
            shift += 7
            if shift > 63:  # noqa: PLR2004 - ten bytes hold every long
                break
        if bits or shift:
            raise ValueError("it ends within a block, or a block has an impossible size")
        return None

    def _exactly(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        if len(data) < size:
            raise ValueError("it is truncated")
        return data


def _without_checksum(data: bytes) -> bytes:
    # In Avro, snappy data ends with the CRC32 of the uncompressed data.
    packed, said = data[:-_CRC_BYTES], data[-_CRC_BYTES:]
    size, shift = 0, 0
    for byte in packed[:5]:  # raw snappy data begins with its size
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:  # noqa: PLR2004 - no other byte follows
            break
    if size > _MOST_BLOCK:
        raise ValueError("it has a block of an impossible size")
    found: bytes = pa.Codec("snappy").decompress(packed, size, asbytes=True)
    if zlib.crc32(found).to_bytes(_CRC_BYTES, "big") != said:
        raise ValueError("it has a block with a wrong checksum")
    return found


def _zstandard(data: bytes) -> bytes:
    with pa.input_stream(pa.BufferReader(data), compression="zstd") as stream:
        found: bytes = stream.read()
    return found


_DECOMPRESS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, _RAW_DEFLATE),
    "snappy": _without_checksum,
    "zstandard": _zstandard,
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
}


# -- whole records -----------------------------------------------------------------------------------------

_RECORD: Final = as_schema(dict(RECORD_SCHEMA))
_FIELDS: Final = [field["name"] for field in RECORD_SCHEMA["fields"]]


class _Rows(NamedTuple):
    begins: Longs
    offsets: Longs
    rest: _Cursor
    """At the first field after the offset."""


def offsets_of(block: AvroBlock, partition: TopicPartition) -> Longs:
    """Check whole records, and return their offsets. Raises ValueError as :func:`decoded` does."""
    return _checked(block, partition).offsets


def _checked(block: AvroBlock, partition: TopicPartition) -> _Rows:
    # Each field is decoded for all rows together: a Python object for each record takes several times
    # the processor time (python -m benchmarks.verify).
    ends, fit = walk_block(block.data, block.rows, _RECORD)
    if fit is not Fit.FITS:
        raise ValueError(f"record {len(ends)} of a block is damaged ({fit.name.lower().replace('_', ' ')})")
    data = np.frombuffer(block.data, np.uint8)
    begins = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    cursor = _Cursor(data, begins)
    topics, lengths = cursor.lengthy()
    numbers = cursor.number()
    offsets = cursor.number()
    name = partition.topic.encode()
    are_ours = (numbers == partition.partition) & (lengths == len(name))
    for place, octet in enumerate(name):  # comparing texts would create an object for each row
        are_ours[are_ours] = data[topics[are_ours] + place] == octet
    if not are_ours.all():
        row = int(np.flatnonzero(~are_ours)[0])
        topic = block.data[topics[row] : topics[row] + lengths[row]].decode(errors="replace")
        raise ValueError(f"it holds a record of {topic}-{numbers[row]} (offset {offsets[row]})")
    return _Rows(begins, offsets, cursor)


def decoded(block: AvroBlock, partition: TopicPartition) -> pa.RecordBatch:
    """Return whole records as :data:`RECORDS`. Raises ValueError for damage and other partitions' records."""
    begins, offsets, cursor = _checked(block, partition)
    has_timestamp = cursor.number() == 1
    timestamps = cursor.number(has_timestamp)
    types = cursor.number().astype(np.int32)
    keys = cursor.optional()
    values = cursor.optional()
    borders = np.stack([begins, keys.begins, keys.ends, values.begins, values.ends], 1)
    columns = _cut(block.data, borders.reshape(-1), {1: ~keys.is_there, 3: ~values.is_there}, 5)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets),
            pa.array(timestamps, mask=~has_timestamp | (timestamps == _NO_TIMESTAMP)),
            pa.array(types),
            *columns,
            _headers(block.data, cursor.at),
        ],
        schema=RECORDS,
    )


class _Span(NamedTuple):
    begins: Longs
    ends: Longs
    is_there: Flags


class _Cursor:
    """A position in each row of a block, advanced in all rows together."""

    def __init__(self, data: Octets, at: Longs) -> None:
        self._data = data
        self.at = at.copy()

    def number(self, wanted: Flags | None = None) -> Longs:
        wanted = None if wanted is None or wanted.all() else wanted
        if wanted is None and (octets := self._data[self.at]).max(initial=0) < 0x80:  # noqa: PLR2004 - one byte each
            self.at += 1
            return (octets >> 1).astype(np.int64) ^ -(octets & 1).astype(np.int64)
        bits = np.zeros(len(self.at), np.uint64)
        rows = np.arange(len(self.at)) if wanted is None else np.flatnonzero(wanted)
        shift = np.uint64(0)
        while len(rows):
            octets = self._data[self.at[rows]]
            bits[rows] |= (octets & 0x7F).astype(np.uint64) << shift
            self.at[rows] += 1
            rows = rows[octets >= 0x80]  # noqa: PLR2004 - another byte follows
            shift += np.uint64(7)
        return (bits >> np.uint64(1)).astype(np.int64) ^ -(bits & np.uint64(1)).astype(np.int64)

    def lengthy(self, wanted: Flags | None = None) -> tuple[Longs, Longs]:
        lengths = self.number(wanted)
        begins = self.at.copy()
        self.at += lengths
        return begins, lengths

    def optional(self) -> _Span:
        is_there = self.number() == 1
        begins, lengths = self.lengthy(is_there)
        return _Span(begins, begins + lengths, is_there)


def _cut(data: bytes, borders: Longs, columns: Mapping[int, Flags | None], each: int) -> list[pa.Array]:
    """Cut a block at ascending borders, and gather the pieces of rows as columns."""
    bounds = np.append(borders, len(data))
    cut = pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(borders), [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    return [
        cut.take(pa.array(np.arange(piece, len(borders), each), mask=are_null))
        for piece, are_null in columns.items()
    ]


class _Items(NamedTuple):
    borders: Longs
    has_value: Flags

    @classmethod
    def none(cls) -> _Items:
        return cls(np.zeros((0, 4), np.int64), np.zeros(0, np.bool_))


def _headers(data: bytes, at: Longs) -> pa.Array:
    """Decode the headers of all rows together, item by item."""
    octets, at, left = np.frombuffer(data, np.uint8), at.copy(), np.zeros(len(at), np.int64)
    rows, owners, items = np.arange(len(at)), [np.zeros(0, np.int64)], [_Items.none()]
    while True:
        cursor = _Cursor(octets, at[rows])
        # An Avro array is blocks of items: a negative count is followed by the block's size in bytes,
        # and an empty block is the end.
        counts = cursor.number(left[rows] == 0)
        cursor.number(counts < 0)
        left[rows] += np.abs(counts)
        at[rows] = cursor.at
        rows = rows[left[rows] > 0]
        if not len(rows):
            break
        cursor = _Cursor(octets, at[rows])
        keys, lengths = cursor.lengthy()
        value = cursor.optional()
        owners.append(rows)
        items.append(_Items(np.stack([keys, keys + lengths, value.begins, value.ends], 1), value.is_there))
        at[rows] = cursor.at
        left[rows] -= 1
    owner = np.concatenate(owners)
    order = np.argsort(owner, kind="stable")
    borders, are_there = (np.concatenate(part)[order] for part in zip(*items, strict=True))
    names, values = _cut(data, borders.reshape(-1), {0: None, 2: ~are_there}, 4)
    ends = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(at)))]).astype(np.int32)
    entries = pa.StructArray.from_arrays(
        [names.cast(pa.string()), values.cast(pa.binary())], fields=list(HEADERS.value_type)
    )
    return pa.ListArray.from_arrays(pa.array(ends), entries, type=HEADERS)


def normalized(batch: pa.RecordBatch, *, is_archived: bool) -> pa.RecordBatch:
    """Return rows of an archived Parquet file, or of a topic directory, as :data:`RECORDS`.

    Columns and values that a topic directory may leave out are a difference in an archived file.
    """
    columns = []
    for field in RECORDS:
        names = [name for name in (field.name, _ELSEWHERE.get(field.name)) if name in batch.schema.names]
        column = batch.column(names[0]) if names else pa.nulls(len(batch), field.type)
        if pa.types.is_timestamp(column.type) and not is_archived:
            column = column.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        column = column.cast(field.type)
        if field.name == "timestamp":
            column = pc.if_else(pc.equal(column, _NO_TIMESTAMP), pa.scalar(None, field.type), column)
        elif field.name in _FOR_NULL and not is_archived:
            column = pc.fill_null(column, pa.scalar(_FOR_NULL[field.name], field.type))
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=RECORDS)


_ELSEWHERE: Final = {"timestamp_type": "timestampType"}
_FOR_NULL: Final[Mapping[str, Any]] = {"timestamp_type": 0, "headers": []}
