"""``JsonFormat``: one value a line, as JSON.

JSON texts, which the converter has checked, are written as they are; those that hold a line feed are written
without whitespace between their parts. Values of any other type are written as Connect's JsonConverter writes
them: a text becomes a JSON text, bytes become base64.
"""

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

DecimalFormat: TypeAlias = Literal["BASE64", "NUMERIC"]
"""Decimals are written as their unscaled numbers in base64, which is Connect's default, or as numbers."""

_END: Final = b"\n"


class JsonLines(LineFormat):
    """Files of lines, each a value as JSON.

    Args:
        decimals: how decimals are written, by ``json.decimal.format``.
        nulls: whether a record without a value is bad or left out.
        gzip_level: -1 to 9; None without compression.
        block_bytes: of a compressed block; None for the default.
        loop: over rows; None for the fastest that is available.
    """

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
        """Raises ConfigException: values have a type that JSON lacks."""
        column = value_column(batch)
        kind = ValueKind.JSON if is_json(column.type) else ValueKind.PLAIN
        joined = join_values(self.texts(column), kind, after=_END, loop=self._loop)
        return encoded(partition, batch, joined, self._nulls, never_skipped)

    def texts(self, column: pa.Array) -> pa.Array:
        """Return the JSON texts of values. Raises ConfigException: they have a type that JSON lacks."""
        if is_json(column.type):
            return column.storage
        # Confluent's JsonFormat has Connect's JsonConverter write structures, and Jackson all else.
        like: Literal["connect", "jackson"] = "connect" if pa.types.is_struct(column.type) else "jackson"
        return json_texts(column, like, decimals=self._decimals)
