"""Files of lines, or of anything that stands one behind the other: as it is, or as one gzip stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, GzipStream
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, RowBlocks
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows

GZIP_EXTENSION: Final = ".gz"


class PlainContent:
    """Rows as they are."""

    def header(self) -> Iterator[BytesLike]:
        """Nothing."""
        return iter(())

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        """Hand them out: views, of which nothing is kept."""
        if rows.nbytes:
            yield rows.payload

    def finish(self) -> Iterator[BytesLike]:
        """Nothing."""
        return iter(())

    @property
    def buffered(self) -> int:
        """None."""
        return 0


class GzipContent:
    """Rows in blocks, compressed one by one into one stream.

    Args:
        level: -1 to 9, see :class:`~sinksdk.connectors.s3_archiver.formats.codecs.GzipStream`.
        block_bytes: bytes of a block before compression.
    """

    def __init__(self, level: int, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = GzipStream(level)
        self._blocks = RowBlocks(block_bytes)

    def header(self) -> Iterator[BytesLike]:
        """Yield what the stream begins with."""
        yield self._stream.header()

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        """Yield the blocks that are full."""
        for block in self._blocks.add(rows):
            yield self._stream.compress(block.joined())

    def finish(self) -> Iterator[BytesLike]:
        """Yield the last block, and what the stream ends with."""
        for block in self._blocks.finish():
            yield self._stream.compress(block.joined())
        yield self._stream.finish()

    @property
    def buffered(self) -> int:
        """Bytes that wait for their block to fill."""
        return self._blocks.buffered


def begin_lines(gzip_level: int | None, block_bytes: int | None = None) -> PlainContent | GzipContent:
    """The content of a file of lines.

    Args:
        gzip_level: None without compression.
        block_bytes: of a compressed block; None for the default.
    """
    return PlainContent() if gzip_level is None else GzipContent(gzip_level, block_bytes or BLOCK_BYTES)
