"""``ByteArrayFormat`` writes the bytes of values, each followed by a separator."""

from __future__ import annotations

import pyarrow as pa

from sinksdk import ConfigException, TopicPartition, json_texts
from sinksdk.connectors.s3_archiver.formats.base import Encoded
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.lines import LineFormat, never_skipped
from sinksdk.connectors.s3_archiver.formats.values import (
    NullBehavior,
    ValueKind,
    ValueLoop,
    encoded,
    has_bytes,
    join_values,
    value_column,
)
from sinksdk.values.json_text import is_json


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
