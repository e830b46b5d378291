"""``JsonFormat`` writes one value per line, as JSON."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import pyarrow as pa

from sinksdk import TopicPartition, json_texts
from sinksdk.connectors.s3_archiver.formats.base import Encoded
from sinksdk.connectors.s3_archiver.formats.datums import EncodedRows
from sinksdk.connectors.s3_archiver.formats.lines import LineFormat, never_skipped
from sinksdk.connectors.s3_archiver.formats.values import (
    NullBehavior,
    ValueKind,
    ValueLoop,
    encoded,
    join_values,
    value_column,
)
from sinksdk.values.json_text import is_json

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
