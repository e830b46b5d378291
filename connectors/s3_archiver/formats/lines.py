"""Values one after another, as JSON lines or as bytes, plain or compressed as one gzip stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from sinksdk import ConfigException, TopicPartition, json_texts
from sinksdk.connectors.s3_archiver.archive.header import FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, OneKind
from sinksdk.connectors.s3_archiver.formats.codecs import BytesLike, GzipStream
from sinksdk.connectors.s3_archiver.formats.columns import Column
from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES, RowBlocks
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.values import (
    VALUE_COLUMNS,
    Fate,
    NullBehavior,
    ValueKind,
    encoded,
    has_bytes,
    join_values,
    value_column,
)
from sinksdk.values.json_text import is_json


class LineContent:
    def __init__(self, gzip_level: int | None, block_bytes: int = BLOCK_BYTES) -> None:
        self._stream = None if gzip_level is None else GzipStream(gzip_level)
        self._blocks = RowBlocks(block_bytes)

    def header(self) -> Iterator[BytesLike]:
        if self._stream is not None:
            yield self._stream.header()

    def append(self, rows: EncodedRows) -> Iterator[BytesLike]:
        if self._stream is not None:
            for block in self._blocks.add(rows):
                yield self._stream.compress(block.joined())
        elif rows.nbytes:
            yield rows.payload

    def finish(self) -> Iterator[BytesLike]:
        if self._stream is not None:
            for block in self._blocks.finish():
                yield self._stream.compress(block.joined())
            yield self._stream.finish()

    @property
    def buffered(self) -> int:
        return self._blocks.buffered


class LineFormat(OneKind):
    """The base of formats that write values one after another."""

    columns = VALUE_COLUMNS

    def __init__(
        self,
        extension: str,
        *,
        nulls: NullBehavior = "fail",
        gzip_level: int | None = None,
        block_bytes: int | None = None,
    ) -> None:
        self.extension = extension if gzip_level is None else f"{extension}.gz"
        self._nulls: NullBehavior = nulls
        self._gzip_level = gzip_level
        self._block_bytes = block_bytes or BLOCK_BYTES

    def begin(self, header: FileHeader, key: str, kind: object) -> LineContent:  # noqa: ARG002 - a signature of Format
        return LineContent(self._gzip_level, self._block_bytes)

    def _joined(
        self, partition: TopicPartition, batch: pa.RecordBatch, column: Column, kind: ValueKind, after: bytes
    ) -> Encoded[EncodedRows]:
        joined = join_values(column, kind, after=after)
        return encoded(partition, batch, joined, self._nulls, _never_skipped)


def _never_skipped(row: int, fate: Fate) -> str:
    # No row is skipped: checked JSON has no line feed within a text, and bytes are written as they are.
    raise AssertionError(row, fate)


class RawBytes(LineFormat):
    """Write values as they are. Readers see a value that holds the separator as two values."""

    def __init__(
        self,
        extension: str = ".bin",
        separator: str = "\n",
        *,
        writes_json: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(extension, **options)
        self._separator = separator.encode()
        self._writes_json = writes_json

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        column = value_column(batch)
        # Transforms return values of any type; without transforms, only bytes and texts are accepted.
        if is_json(column.type) or (self._writes_json and not has_bytes(column.type)):
            column = json_texts(column)
        if not has_bytes(column.type):
            raise ConfigException(
                f"{partition}: values of type {column.type} are not bytes, but ByteArrayFormat archives only "
                f"bytes: set 'value.converter' to bytes, or 'format.class' to JsonFormat, AvroFormat or "
                f"ParquetFormat"
            )
        return self._joined(partition, batch, column, ValueKind.PLAIN, self._separator)


# BASE64, Connect's default, is the unscaled number in base64.
DecimalFormat: TypeAlias = Literal["BASE64", "NUMERIC"]


class JsonLines(LineFormat):
    def __init__(self, *, decimals: DecimalFormat = "BASE64", **options: Any) -> None:
        super().__init__(".json", **options)
        self._decimals: DecimalFormat = decimals

    def encode(self, partition: TopicPartition, batch: pa.RecordBatch) -> Encoded[EncodedRows]:
        column = value_column(batch)
        # The converter has checked JSON texts: only those that hold a line feed are rewritten.
        kind = ValueKind.JSON if is_json(column.type) else ValueKind.PLAIN
        return self._joined(partition, batch, self.texts(column), kind, b"\n")

    def texts(self, column: pa.Array) -> pa.Array:
        """Return the JSON texts of values. Raises ConfigException for a type that JSON lacks."""
        if is_json(column.type):
            return column.storage
        # Confluent's JsonFormat has Connect's JsonConverter write structures, and Jackson all else.
        like: Literal["connect", "jackson"] = "connect" if pa.types.is_struct(column.type) else "jackson"
        return json_texts(column, like, decimals=self._decimals)
