"""Join the values of a column into the content of files."""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.formats.base import Encoded
from sinksdk.connectors.s3_archiver.formats.columns import Column, Octets
from sinksdk.connectors.s3_archiver.formats.datums import BYTES, EncodedRows, borders_of
from sinksdk.connectors.s3_archiver.formats.encoder import column_buffers


class ValueKind(IntEnum):
    PLAIN = 0
    # The value begins with a zero byte, and loses as many bytes as ``before`` has.
    FRAMED = 1
    # The value is valid JSON; if it holds a line feed, it is written without whitespace.
    JSON = 2


class Fate(IntEnum):
    """The outcome of one row; only rows that are TAKEN have bytes."""

    TAKEN = 0
    NULL = 1
    # The value is shorter than the bytes to cut off.
    SHORT = 2
    # The value is not of the expected kind.
    OTHER = 3


class JoinedValues(NamedTuple):
    rows: EncodedRows
    fates: Octets


# The arguments are a column, the kind of its values, their first bytes, and the bytes after each value.
ValueLoop: TypeAlias = Callable[[Column, ValueKind, bytes, bytes], JoinedValues]


def join_values(
    column: Column,
    kind: ValueKind,
    before: bytes = b"",
    after: bytes = b"",
    loop: ValueLoop | None = None,
) -> JoinedValues:
    """Join values: FRAMED ones lose as many bytes as ``before`` has, and ``after`` follows each value."""
    if column.null_count == len(column):
        fates = np.full(len(column), Fate.NULL, np.uint8)
        return JoinedValues(EncodedRows(memoryview(b""), np.zeros(len(column) + 1, np.int64)), fates)
    if column.type.id not in _KNOWN:
        column = column.cast(BYTES)
    return (loop or VALUE_LOOP)(column, kind, before, after)


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether values are bytes or text; a column of nulls counts, too."""
    return kind.id in _KNOWN or kind.id in _LIKEWISE


def bad_record(partition: TopicPartition, offset: object, why: str) -> DataException:
    # Errors are logged, so they must not hold the content of a record.
    return DataException(f"{partition}: the record at offset {offset} cannot be archived: {why}")


NullBehavior: TypeAlias = Literal["fail", "ignore"]
NO_VALUE: Final = (
    "it has no value (null), and 'behavior.on.null.values' is fail: set it to ignore to leave such records "
    "out, to write to keep their keys (with 'store.kafka.keys'), or 'archive.content' to record, with "
    "AvroFormat or ParquetFormat, to keep them whole"
)


VALUE_COLUMNS: Final = ("offset", "value")


def value_column(batch: pa.RecordBatch) -> Column:
    """Return the values of a batch in a type that loops support; null if the column is missing."""
    index = batch.schema.get_field_index("value")
    column = pa.nulls(batch.num_rows) if index < 0 else batch.column(index)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if column.type.id not in _LIKEWISE:
        return column
    return column.cast(pa.large_string() if pa.types.is_string_view(column.type) else BYTES)


def encoded(
    partition: TopicPartition,
    batch: pa.RecordBatch,
    joined: JoinedValues,
    nulls: NullBehavior,
    why: Callable[[int, Fate], str],
) -> Encoded[EncodedRows]:
    """Return the joined rows; other rows become bad records or are left out."""
    rows, fates = joined
    if not fates.any():
        return Encoded(rows, {})
    offsets = batch.column("offset")
    bad: dict[int, DataException | None] = {}
    for row in np.flatnonzero(fates).tolist():
        fate = Fate(fates[row])
        if fate is Fate.NULL and nulls == "ignore":
            bad[row] = None
        else:
            reason = NO_VALUE if fate is Fate.NULL else why(row, fate)
            bad[row] = bad_record(partition, offsets[row], reason)
    taken = rows.borders[:-1][fates == Fate.TAKEN]  # rows that were not taken have no bytes
    return Encoded(EncodedRows(rows.data, np.append(taken, rows.borders[-1])), bad)


# -- without a compiler ------------------------------------------------------------------------------------

_MARKS: Final = frozenset(b'{}[],:"')
_PARTS: Final = re.compile(
    rb'(?P<space>[ \t\n\r]+)|(?P<text>"(?:[^"\\\n\r]|\\[^\n\r])*")|[{}\[\],:]|[^ \t\n\r"{}\[\],:]+', re.DOTALL
)


def plain_values(column: Column, kind: ValueKind, before: bytes, after: bytes) -> JoinedValues:
    made, fates = [], []
    for value in column.cast(BYTES).to_pylist():
        fate, piece = _value(value, kind, before)
        fates.append(fate)
        made.append(piece + after if fate is Fate.TAKEN else b"")
    borders = borders_of(np.array([len(piece) for piece in made], np.int64))
    return JoinedValues(EncodedRows(memoryview(b"".join(made)), borders), np.array(fates, np.uint8))


def _value(value: bytes | None, kind: ValueKind, before: bytes) -> tuple[Fate, bytes]:
    if value is None:
        return Fate.NULL, b""
    if len(value) < len(before):
        return Fate.SHORT, b""
    if kind is ValueKind.FRAMED:
        return (Fate.OTHER, b"") if value[0] else (Fate.TAKEN, value[len(before) :])
    if kind is ValueKind.JSON and (b"\n" in value or b"\r" in value):
        line = minified(value)
        return (Fate.OTHER, b"") if line is None else (Fate.TAKEN, line)
    return Fate.TAKEN, value


def minified(value: bytes) -> bytes | None:
    """Return a JSON value without whitespace; None for anything but one whole value."""
    parts: list[bytes] = []
    depth = at = 0
    had_space = False
    while at < len(value):
        found = _PARTS.match(value, at)
        if found is None:
            return None
        part, at = found[0], found.end()
        if found["space"]:
            had_space = True
            continue
        # Without the space, two parts would become one: text that is not JSON must not become JSON.
        is_joined = had_space and parts and part[0] not in _MARKS and parts[-1][-1] not in _MARKS
        if (not depth and parts) or is_joined:
            return None
        had_space = False
        parts.append(part)
        depth += (part in (b"{", b"[")) - (part in (b"}", b"]"))
    return None if depth else b"".join(parts)


# -- with one ----------------------------------------------------------------------------------------------

_KNOWN: Final = frozenset(kind.id for kind in (pa.binary(), pa.string(), BYTES, pa.large_string()))

_LIKEWISE: Final = frozenset(
    kind.id for kind in (pa.null(), pa.binary_view(), pa.string_view(), pa.binary(1))
)

compiled_values: ValueLoop | None
try:
    from sinksdk.connectors.s3_archiver.formats import _datums
except ImportError:  # encoder.py logs the reason
    compiled_values = None
else:

    def compiled_values(column: Column, kind: ValueKind, before: bytes, after: bytes) -> JoinedValues:
        rows = len(column)
        order = (int(kind), before, after, rows, pa.allocate_buffer, column_buffers(column))
        data, borders, fates = _datums.values(order)
        joined = EncodedRows(memoryview(data).toreadonly(), np.frombuffer(borders, np.int64, rows + 1))
        return JoinedValues(joined, np.frombuffer(fates, np.uint8, rows))


VALUE_LOOP: Final[ValueLoop] = compiled_values or plain_values
