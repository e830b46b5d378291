"""A column of values, one behind the other: as lines, or without a schema registry's framing.

The loop over rows is compiled (``_datums.c``) where a wheel brings it or a compiler was there; else
:func:`plain_values` does the same in Python, many times slower. Both return the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from sinksdk import DataException, TopicPartition
from sinksdk.connectors.s3_archiver.codecs import BytesLike
from sinksdk.connectors.s3_archiver.columns import as_mask
from sinksdk.connectors.s3_archiver.datums import BYTES, Column, EncodedRows, Flags, Octets, borders_of
from sinksdk.connectors.s3_archiver.encoder import column_buffers
from sinksdk.connectors.s3_archiver.formats import Encoded


class ValueKind(IntEnum):
    """What values are, and what is done with them."""

    PLAIN = 0
    """Bytes as they are."""
    FRAMED = 1
    """A zero byte first: as many bytes as ``before`` has are cut off."""
    JSON = 2
    """Objects, arrays and texts of JSON: one that holds a line's end is written without space."""
    MAYBE_ENVELOPE = 3
    """The same, but not an object that begins as Connect's envelope."""
    PAYLOAD = 4
    """Envelopes that begin with ``before``: the payload, without space."""


class Fate(IntEnum):
    """What becomes of a row. Only the first two have bytes."""

    TAKEN = 0
    WIDE = 1
    """Taken, and JSON with many characters beyond ASCII: whether it is UTF-8 is not known."""
    NULL = 2
    SHORT = 3
    """Shorter than what is cut off; empty, where JSON is wanted."""
    OTHER = 4
    """Not of its kind, as far as is seen without parsing it."""


class JoinedValues(NamedTuple):
    """Values one behind the other.

    Args:
        rows: as many as the column has.
        fates: a :class:`Fate` for each row.
    """

    rows: EncodedRows
    fates: Octets


ValueLoop: TypeAlias = Callable[[Column, ValueKind, bytes, bytes], JoinedValues]
"""Joins the values of a column of bytes: a kind, what they begin with, what is put behind each."""


def join_values(
    column: Column,
    kind: ValueKind,
    before: bytes = b"",
    after: bytes = b"",
    loop: ValueLoop | None = None,
) -> JoinedValues:
    """The values of a column of bytes or text, joined.

    Args:
        before: of FRAMED as many bytes as are cut off, of PAYLOAD what an envelope begins with.
        after: is put behind each value.
        loop: over rows; None for the better one of those that are there.
    """
    if column.null_count == len(column):
        return nothing_joined(column)
    if column.type.id not in _KNOWN:
        column = column.cast(BYTES)
    return (loop or VALUE_LOOP)(column, kind, before, after)


def nothing_joined(column: Column) -> JoinedValues:
    """No value is taken."""
    rows = len(column)
    fates = np.full(rows, Fate.OTHER, np.uint8)
    if column.null_count:
        fates[as_mask(column.is_null())] = Fate.NULL
    return JoinedValues(EncodedRows(memoryview(b""), np.zeros(rows + 1, np.int64)), fates)


def has_bytes(kind: pa.DataType) -> bool:
    """Whether values are bytes or text, or there are none."""
    return kind.id in _KNOWN or kind.id in _LIKEWISE


def only(rows: EncodedRows, kept: Flags) -> EncodedRows:
    """Without rows that are not kept, none of which has bytes."""
    return EncodedRows(rows.data, np.append(rows.borders[:-1][kept], rows.borders[-1]))


def with_texts(joined: JoinedValues, texts: Mapping[int, bytes | None]) -> JoinedValues:
    """With bytes for some of the rows that had none, which are taken then, or are null."""
    if not texts:
        return joined
    data, borders = joined.rows.data, joined.rows.borders
    lengths, fates = np.diff(borders), joined.fates.copy()
    pieces: list[BytesLike] = []
    at = 0
    for row, text in sorted(texts.items()):
        fates[row] = Fate.NULL if text is None else Fate.TAKEN
        if text is not None:
            pieces += [data[at : int(borders[row])], text]
            at, lengths[row] = int(borders[row]), len(text)
    whole = b"".join([*pieces, data[at : int(borders[-1])]])
    return JoinedValues(EncodedRows(memoryview(whole), borders_of(lengths)), fates)


def bad_record(partition: TopicPartition, offset: object, why: str) -> DataException:
    """The error of one record. It quotes nothing of the record: it ends up in logs."""
    return DataException(f"{partition}: the record at offset {offset} cannot be archived: {why}")


NullBehavior: TypeAlias = Literal["fail", "ignore"]
"""Whether a record without a value is bad, or is left out."""

NO_VALUE: Final = (
    "it has no value (null), and 'behavior.on.null.values' is fail: set it to ignore to leave such records "
    "out, or 'archive.content' to record, with AvroFormat or ParquetFormat, to keep them"
)


VALUE_COLUMNS: Final = ("offset", "value")
"""The columns of a batch that formats of values look at."""


def value_column(batch: pa.RecordBatch) -> Column:
    """The values of a batch, nulls where it has none; bytes and texts as one of the types that loops know."""
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
    """What was joined of a batch, without the rows that were not taken.

    Args:
        why: a row that is neither taken nor null was not taken.
    """
    rows, fates = joined
    if fates.max(initial=Fate.TAKEN) <= Fate.WIDE:
        return Encoded(rows, {})
    offsets = batch.column("offset")
    bad: dict[int, DataException | None] = {}
    for row in np.flatnonzero(fates > Fate.WIDE).tolist():
        fate = Fate(fates[row])
        if fate is Fate.NULL and nulls == "ignore":
            bad[row] = None
        else:
            reason = NO_VALUE if fate is Fate.NULL else why(row, fate)
            bad[row] = bad_record(partition, offsets[row], reason)
    return Encoded(only(rows, fates <= Fate.WIDE), bad)


# -- without a compiler ------------------------------------------------------------------------------------

_SPACE: Final = b" \t\n\r"
_MOST_WIDE: Final = 16  # characters beyond ASCII that are looked at
_MARKS: Final = frozenset(b'{}[],:"')
_PARTS: Final = re.compile(
    rb'(?P<space>[ \t\n\r]+)|(?P<text>"(?:[^"\\\n\r]|\\[^\n\r])*")|[{}\[\],:]|[^ \t\n\r"{}\[\],:]+', re.DOTALL
)
_BEGINS_AS_ENVELOPE: Final = re.compile(rb'\{[ \t\n\r]*"(?:schema|payload)"')


def plain_values(column: Column, kind: ValueKind, before: bytes, after: bytes) -> JoinedValues:
    """What ``_datums.c`` does, without a compiler."""
    made, fates = [], []
    for value in column.cast(BYTES).to_pylist():
        fate, piece = _value(value, kind, before)
        fates.append(fate)
        made.append(piece + after if fate <= Fate.WIDE else b"")
    borders = borders_of(np.array([len(piece) for piece in made], np.int64))
    return JoinedValues(EncodedRows(memoryview(b"".join(made)), borders), np.array(fates, np.uint8))


def _value(value: bytes | None, kind: ValueKind, before: bytes) -> tuple[Fate, bytes]:
    if value is None:
        return Fate.NULL, b""
    if len(value) < len(before) or (kind >= ValueKind.JSON and not value):
        return Fate.SHORT, b""
    if kind is ValueKind.PLAIN:
        return Fate.TAKEN, value
    if kind is ValueKind.FRAMED:
        return (Fate.OTHER, b"") if value[0] else (Fate.TAKEN, value[len(before) :])
    text = _json(value, kind, before)
    fate = Fate.OTHER if text is None else _fate_of_text(text)
    return fate, b"" if text is None or fate is Fate.OTHER else text


def _fate_of_text(text: bytes) -> Fate:
    """Whether JSON is text. With many characters beyond ASCII that is not known: Arrow finds it faster."""
    if text.isascii():
        return Fate.TAKEN
    try:
        decoded = text.decode()
    except UnicodeDecodeError as error:
        return Fate.WIDE if _wide_in(text[: error.start].decode()) >= _MOST_WIDE else Fate.OTHER
    return Fate.WIDE if _wide_in(decoded) > _MOST_WIDE else Fate.TAKEN


def _wide_in(text: str) -> int:
    return sum(character > "\x7f" for character in text)


def _json(value: bytes, kind: ValueKind, before: bytes) -> bytes | None:
    """An object, array or text of JSON in one line. None for what a parser must look at."""
    if kind is ValueKind.PAYLOAD:
        if not value.startswith(before) or not value.endswith(b"}"):
            return None
        value = value[len(before) : -1]
    inner = value.strip(_SPACE)
    if len(inner) < 2 or inner[:1] + inner[-1:] not in (b"{}", b"[]", b'""'):  # noqa: PLR2004 - both ends
        return None
    if kind is ValueKind.MAYBE_ENVELOPE and _BEGINS_AS_ENVELOPE.match(inner):
        return None
    return minified(inner) if kind is ValueKind.PAYLOAD or b"\n" in value or b"\r" in value else value


def minified(value: bytes) -> bytes | None:
    """One JSON value without the space between its parts.

    None where it is not one whole value, where a text holds a line's end, or where two parts would become
    one: nothing that is no JSON becomes JSON.
    """
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
    from sinksdk.connectors.s3_archiver import _datums
except ImportError:  # encoder.py has said so
    compiled_values = None
else:

    def compiled_values(column: Column, kind: ValueKind, before: bytes, after: bytes) -> JoinedValues:
        """The loop of ``_datums.c``."""
        rows = len(column)
        order = (int(kind), before, after, rows, pa.allocate_buffer, column_buffers(column))
        data, borders, fates = _datums.values(order)
        joined = EncodedRows(memoryview(data).toreadonly(), np.frombuffer(borders, np.int64, rows + 1))
        return JoinedValues(joined, np.frombuffer(fates, np.uint8, rows))


VALUE_LOOP: Final[ValueLoop] = compiled_values or plain_values
"""The better one of those that are there."""
