"""Files of values one after another, as they are or compressed as one gzip stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, GzipStream
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, RowBlocks
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.values import VALUE_COLUMNS, Fate

_GZIP_EXTENSION: Final = ".gz"


class PlainContent:
    def header(self) -> Iterator[BytesLike]:
        return iter(())

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        if rows.nbytes:
            yield rows.payload

    def finish(self) -> Iterator[BytesLike]:
        return iter(())

    @property
    def buffered(self) -> int:
        return 0


class GzipContent:
    def __init__(self, level: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = GzipStream(level)
        self._blocks = RowBlocks(block_bytes)

    def header(self) -> Iterator[BytesLike]:
        yield self._stream.header()

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        for block in self._blocks.add(rows):
            yield self._stream.compress(block.joined())

    def finish(self) -> Iterator[BytesLike]:
        for block in self._blocks.finish():
            yield self._stream.compress(block.joined())
        yield self._stream.finish()

    @property
    def buffered(self) -> int:
        return self._blocks.buffered


class LineFormat(OneKind):
    """The base of formats that write values one after another."""

    columns = VALUE_COLUMNS

    def __init__(self, extension: str, gzip_level: int | None, block_bytes: int | None) -> None:
        self.extension = extension if gzip_level is None else extension + _GZIP_EXTENSION
        self._gzip_level = gzip_level
        self._block_bytes = block_bytes or BLOCK_BYTES

    def begin(self, header: FileHeader, key: str, kind: object) -> PlainContent | GzipContent:  # noqa: ARG002 - of the protocol
        if self._gzip_level is None:
            return PlainContent()
        return GzipContent(self._gzip_level, self._block_bytes)


def never_skipped(row: int, fate: Fate) -> str:
    # Checked JSON has no line feed within a text, and bytes are written as they are: no row is skipped.
    raise AssertionError(row, fate)
