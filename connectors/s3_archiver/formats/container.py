"""Write Avro object container files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, Codec
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows, varint
from sinksdk.connectors.s3_archiver.formats.schema import SYNC_BYTES

_MAGIC: Final = b"Obj\x01"
_RESERVED: Final = "avro."

# Bytes before compression. Beyond 256 KiB zstandard uses tables with which level 1 is a tenth slower.
BLOCK_BYTES: Final = 240 * 1024


class ContainerWriter:
    """Write one Avro file as pieces, in memory of less than a block."""

    def __init__(
        self,
        schema: Any,
        codec: Codec,
        metadata: Mapping[str, bytes],
        sync_marker: bytes,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        _check(metadata, sync_marker, block_bytes)
        self._codec = codec
        self._sync_marker = sync_marker
        self._metadata = {
            **metadata,
            "avro.codec": codec.name.encode(),
            "avro.schema": (schema if isinstance(schema, str) else json.dumps(schema)).encode(),
        }
        # fastavro cuts the same blocks for a sync_interval of this size: with the null codec, both
        # write the same bytes.
        self._blocks = RowBlocks(block_bytes)
        self.records = 0

    @property
    def buffered(self) -> int:
        return self._blocks.buffered

    def header(self) -> Iterator[BytesLike]:
        entries = b"".join(
            _length_prefixed(name.encode()) + _length_prefixed(value)
            for name, value in self._metadata.items()
        )
        yield _MAGIC + varint(len(self._metadata)) + entries + b"\x00" + self._sync_marker

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        self.records += len(rows)
        for block in self._blocks.add(rows):
            yield from self._stored(block)

    def finish(self) -> Iterator[BytesLike]:
        for block in self._blocks.finish():
            yield from self._stored(block)

    def _stored(self, block: Block) -> Iterator[BytesLike]:
        pieces: Sequence[BytesLike] = block.pieces
        # The null codec writes pieces as they are, because joining would copy them.
        if self._codec.name != "null":
            pieces = [self._codec.compress(block.joined())]
        yield varint(block.records) + varint(sum(map(len, pieces)))
        yield from pieces
        yield self._sync_marker


class Block(NamedTuple):
    records: int
    pieces: Sequence[BytesLike]

    def joined(self) -> BytesLike:
        return self.pieces[0] if len(self.pieces) == 1 else b"".join(self.pieces)


class RowBlocks:
    """Collect rows into blocks. A block ends with the row that fills it, across batches."""

    def __init__(self, block_bytes: int) -> None:
        self._block_bytes = block_bytes
        self._pending: list[BytesLike] = []  # the rows of a block that is not full yet
        self._pending_records = 0
        self.buffered = 0

    def add(self, rows: EncodedRows) -> Iterator[Block]:
        """Yield the full blocks. Their pieces may be views of the rows' buffer."""
        data, borders, last = rows.data, rows.borders, len(rows)
        row, start, end = 0, int(borders[0]), int(borders[last])
        while end - start >= (missing := self._block_bytes - self.buffered):
            stop_row = int(borders.searchsorted(start + missing))
            stop = int(borders[stop_row])
            self._add(stop_row - row, data[start:stop])
            yield self._block()
            row, start = stop_row, stop
        if row < last:  # copied, for a view would hold the whole batch in memory
            self._add(last - row, bytes(data[start:end]))

    def finish(self) -> Iterator[Block]:
        if self._pending_records:
            yield self._block()

    def _add(self, records: int, payload: BytesLike) -> None:
        self._pending.append(payload)
        self._pending_records += records
        self.buffered += len(payload)

    def _block(self) -> Block:
        block = Block(self._pending_records, self._pending)
        self._pending, self._pending_records, self.buffered = [], 0, 0
        return block


def _length_prefixed(octets: bytes) -> bytes:
    return varint(len(octets)) + octets


def _check(metadata: Mapping[str, bytes], sync_marker: bytes, block_bytes: int) -> None:
    reserved = [name for name in metadata if name.startswith(_RESERVED)]
    if reserved:
        raise ValueError(f"file metadata under '{_RESERVED}' is Avro's own: rename {', '.join(reserved)}")
    if len(sync_marker) != SYNC_BYTES:
        raise ValueError(f"a sync marker has {SYNC_BYTES} bytes, this one has {len(sync_marker)}")
    if block_bytes < 1:
        raise ValueError(f"a block must hold at least 1 byte, not {block_bytes}")
