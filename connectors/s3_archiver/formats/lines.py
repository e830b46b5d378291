"""Values one after another, as JSON lines or as bytes, plain or compressed as one gzip stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal, TypeAlias

import pyarrow as pa

from sinksdk import ConfigException, TopicPartition, json_texts
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, GzipStream
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, RowBlocks
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.values import (
    VALUE_COLUMNS,
    Fate,
    NullBehavior,
    ValueKind,
    ValueLoop,
    encoded,
    has_bytes,
    join_values,
    value_column,
)
from sinksdk.values.json_text import is_json

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


class RawBytes(LineFormat):
    """Write values as they are. Readers see a value that holds the separator as two values."""

    def __init__(
        self,
        extension: str = ".bin",
        separator: str = "\n",
        *,
        nulls: NullBehavior = "fail",
        writes_json: bool = False,
        gzip_level: int | None = None,
        block_bytes: int | None = None,
        loop: ValueLoop | None = None,
    ) -> None:
        super().__init__(extension, gzip_level, block_bytes)
        self._separator = separator.encode()
        self._nulls: NullBehavior = nulls
        self._writes_json = writes_json
        self._loop = loop

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        column = value_column(batch)
        # Transforms return values of any type; without transforms, only bytes and texts are accepted.
        if is_json(column.type) or (self._writes_json and not has_bytes(column.type)):
            column = json_texts(column)
        if not has_bytes(column.type):
            raise ConfigException(
                f"{partition}: values of type {column.type} are no bytes, which is what ByteArrayFormat "
                f"archives: set 'value.converter' to bytes, or 'format.class' to JsonFormat, AvroFormat or "
                f"ParquetFormat"
            )
        joined = join_values(column, ValueKind.PLAIN, after=self._separator, loop=self._loop)
        return encoded(partition, batch, joined, self._nulls, never_skipped)


# BASE64, Connect's default, is the unscaled number in base64.
DecimalFormat: TypeAlias = Literal["BASE64", "NUMERIC"]

_END: Final = b"\n"


class JsonLines(LineFormat):
    def __init__(
        self,
        *,
        decimals: DecimalFormat = "BASE64",
        nulls: NullBehavior = "fail",
        gzip_level: int | None = None,
        block_bytes: int | None = None,
        loop: ValueLoop | None = None,
    ) -> None:
        super().__init__(".json", gzip_level, block_bytes)
        self._decimals: DecimalFormat = decimals
        self._nulls: NullBehavior = nulls
        self._loop = loop

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        column = value_column(batch)
        # The converter has checked JSON texts: only those that hold a line feed are rewritten.
        kind = ValueKind.JSON if is_json(column.type) else ValueKind.PLAIN
        joined = join_values(self.texts(column), kind, after=_END, loop=self._loop)
        return encoded(partition, batch, joined, self._nulls, never_skipped)

    def texts(self, column: pa.Array) -> pa.Array:
        """Return the JSON texts of values. Raises ConfigException for a type that JSON lacks."""
        if is_json(column.type):
            return column.storage
        # Confluent's JsonFormat has Connect's JsonConverter write structures, and Jackson all else.
        like: Literal["connect", "jackson"] = "connect" if pa.types.is_struct(column.type) else "jackson"
        return json_texts(column, like, decimals=self._decimals)
