"""Batches of values, and files of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from sinksdk import TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived, FileHeader
from sinksdk.connectors.s3_archiver.formats.base import Encoded, Format
from sinksdk.values.json_text import json_column

ORDERS = TopicPartition("orders", 3)
FIRST = 1_000


def batch(values: Sequence[Any] | pa.Array, kind: pa.DataType | None = None) -> pa.RecordBatch:
    column = values if isinstance(values, pa.Array) else pa.array(values, kind or pa.binary())
    offsets = pa.array(range(FIRST, FIRST + len(column)), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, column], names=["offset", "value"])


def json_batch(values: Sequence[bytes | None]) -> pa.RecordBatch:
    # JSON texts have the column type of the JSON converter's results.
    return batch(json_column(pa.array(values, pa.binary())))


def encode(format_: Format[Any], given: pa.RecordBatch | Sequence[Any]) -> Encoded[Any]:
    return format_.encode(ORDERS, given if isinstance(given, pa.RecordBatch) else batch(given))


def pieces_of(encoded: Encoded[Any]) -> list[bytes]:
    return [bytes(encoded.rows.slice(row, row + 1).payload) for row in range(len(encoded.rows))]


def file_of(format_: Format[Any], given: Sequence[Any], kind: object = None) -> bytes:
    header = FileHeader(ORDERS, FIRST, "archiver", 1, Archived())
    content = format_.begin(header, "topics/orders/file", kind)
    pieces = [*content.header()]
    for rows in given:
        pieces += content.append(rows)
    return b"".join([*pieces, *content.finish()])


def reasons(encoded: Encoded[Any]) -> dict[int, str]:
    return {row: str(error) for row, error in encoded.bad.items()}
