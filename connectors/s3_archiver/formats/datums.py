"""Encode Avro datums of many rows at once, with numpy and Arrow.

Installations without the compiled loop (pure wheels) archive with it; Python's objects per field cost more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sinksdk.connectors.s3_archiver.formats.columns import Column, Flags, Longs, Octets, as_mask, filled

# The offsets have 64 bits, because 2 GiB of rows overflow 32 bits.
BYTES: Final = pa.large_binary()

_CONTINUES: Final = 0x80
_SEVEN_BITS: Final = 0x7F


def varint(value: int) -> bytes:
    # Zigzag encoding: the sign is the lowest bit, then each byte has seven bits, lowest first.
    rest = (value << 1) ^ (value >> 63)
    octets = bytearray()
    while rest >= _CONTINUES:
        octets.append(rest & _SEVEN_BITS | _CONTINUES)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)


class ShortFields:
    """Build the short fields of all rows, one byte column at a time."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._template = bytearray()  # the template of a row: constants, and zeros where columns are inserted
        self._columns: list[tuple[int, Octets]] = []
        # A field is at the same position in every row of the template; bytes that a row does not need, as for
        # a shorter varint, are cut out.
        self._masks: list[tuple[int, Flags]] = []

    def constant(self, octets: bytes) -> None:
        self._template += octets

    def column(self, octets: Octets, present: Flags | None = None) -> None:
        """Append one byte to the rows that are ``present``; None: to all."""
        place = len(self._template)
        self._template.append(0)
        self._columns.append((place, octets))
        if present is not None:
            self._masks.append((place, present))

    def long(self, values: Longs, present: Flags | None = None) -> None:
        """Append a varint to the rows that are ``present``; None: to all."""
        rest = ((values << 1) ^ (values >> 63)).view(np.uint64)
        smallest, largest = int(rest.min()), int(rest.max())
        if smallest == largest and present is None:
            self.constant(varint(int(values[0])))
            return
        while largest >= _CONTINUES:
            octets = rest.astype(np.uint8)
            if smallest >= _CONTINUES:
                octets |= _CONTINUES
                self.column(octets, present)
            else:
                continues = rest >= _CONTINUES
                octets &= _SEVEN_BITS
                octets |= continues.view(np.uint8) << 7
                self.column(octets, present)
                present = continues if present is None else continues & present
            rest >>= 7
            smallest, largest = smallest >> 7, largest >> 7
        self.column(rest.astype(np.uint8), present)

    def build(self) -> Any:
        """Return the fields: None if there are none, a scalar if all rows agree, else an array."""
        if not self._columns:
            return bytes_scalar(bytes(self._template)) if self._template else None
        rows, width = self._rows, len(self._template)
        matrix = np.frombuffer(self._template * rows, np.uint8).reshape(rows, width)
        for place, octets in self._columns:
            matrix[:, place] = octets
        if not self._masks:
            return bytes_array(np.arange(0, (rows + 1) * width, width, dtype=np.int64), matrix.data)
        mask = np.ones((rows, width), np.bool_)
        lengths = np.full(rows, width - len(self._masks), np.int64)
        for place, present in self._masks:
            mask[:, place] = present
            lengths += present
        return bytes_array(borders_of(lengths), matrix[mask].data)


def borders_of(lengths: Longs) -> Longs:
    """Return where each piece begins, and where the last one ends."""
    borders = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    return borders


def bytes_array(borders: Longs, data: memoryview) -> Column:
    buffers = [None, pa.py_buffer(borders.data), pa.py_buffer(data)]
    return pa.Array.from_buffers(BYTES, len(borders) - 1, buffers)


def bytes_scalar(octets: bytes) -> Any:
    return bytes_array(np.array([0, len(octets)], np.int64), memoryview(octets))[0]


_NO_SEPARATOR: Final = bytes_scalar(b"")
_NULL_BRANCH: Final = b"\x00"
_VALUE_BRANCH: Final = b"\x02"  # the varint of branch 1
_ARRAY_END: Final = b"\x00"


@dataclass(frozen=True, slots=True, eq=False)
class EncodedRows:
    data: memoryview
    # Row i has the bytes data[borders[i] : borders[i + 1]].
    borders: Longs

    def __len__(self) -> int:
        return len(self.borders) - 1

    def slice(self, start: int, stop: int) -> EncodedRows:
        return EncodedRows(self.data, self.borders[start : stop + 1])

    @property
    def payload(self) -> memoryview:
        return self.data[int(self.borders[0]) : int(self.borders[-1])]

    @property
    def nbytes(self) -> int:
        return int(self.borders[-1] - self.borders[0])


NO_ROWS: Final = EncodedRows(memoryview(b""), np.zeros(1, np.int64))


class DatumBuilder:
    """Append fields to the datums of all rows. Columns of bytes are of type :data:`BYTES`."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._parts: list[Any] = []
        self._short = ShortFields(rows)

    def constant(self, octets: bytes) -> None:
        self._short.constant(octets)

    def long(self, values: Longs) -> None:
        self._short.long(values)

    def nullable_long(self, values: Longs, present: Flags | None) -> None:
        """Append a ``["null", "long"]``; ``values`` is 0 where ``present`` is false. None: no row is null."""
        if self._branch(present):
            self._short.long(values, present)

    def bytes(self, column: Column) -> None:
        """Append a ``bytes`` or ``string`` column without nulls."""
        self._short.long(filled(pc.binary_length(column)))
        self._copy(column)

    def nullable_bytes(self, column: Column) -> None:
        present = present_in(column)
        if self._branch(present):
            self._short.long(filled(pc.binary_length(column)), present)
            self._copy(column)

    def array(self, counts: Longs, items: EncodedRows) -> None:
        """Append an array: row ``i`` takes the next ``counts[i]`` items."""
        if len(items):
            self._short.long(counts, counts > 0)
            self._copy(bytes_array(items.borders[borders_of(counts)], items.data))
        self._short.constant(_ARRAY_END)

    def build(self) -> EncodedRows:
        """Return the datums. The builder cannot be used afterwards."""
        self._end_short_fields()
        # Arrow interleaves short fields and columns of bytes: it copies each byte once, and creates no
        # Python object per row.
        joined = pc.binary_join_element_wise(
            *self._parts, _NO_SEPARATOR, null_handling="replace", null_replacement=""
        )
        if isinstance(joined, pa.Scalar):  # no part is a column, so all rows are the same
            datum = joined.as_py()
            return EncodedRows(memoryview(datum * self._rows), np.arange(self._rows + 1) * len(datum))
        _, borders, data = joined.buffers()
        return EncodedRows(memoryview(data), np.frombuffer(borders, np.int64, self._rows + 1))

    def _branch(self, present: Flags | None) -> bool:
        """Append the branch of a nullable type; return False if all rows are null."""
        if present is None:
            self._short.constant(_VALUE_BRANCH)
            return True
        if not present.any():
            self._short.constant(_NULL_BRANCH)
            return False
        self._short.column(present.view(np.uint8) << np.uint8(1))  # 2, the varint of 1, or 0
        return True

    def _copy(self, column: Column) -> None:
        self._end_short_fields()
        self._parts.append(column)

    def _end_short_fields(self) -> None:
        fields = self._short.build()
        if fields is not None:
            self._parts.append(fields)
        self._short = ShortFields(self._rows)


def present_in(column: Column) -> Flags | None:
    """Return which rows are not null; None if all are."""
    return as_mask(column.is_valid()) if column.null_count else None
