"""Avro's integers: one as bytes, or a whole column of them with numpy.

Avro writes ``int`` and ``long`` as zig-zag varints: the sign moved into the lowest bit, then seven
bits to a byte, lowest first, the high bit set in all bytes but the last.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Octets: TypeAlias = npt.NDArray[np.uint8]
Column: TypeAlias = Any  # a pyarrow.Array; its stubs cannot follow arrays of types known at run time only

BYTES: Final = pa.large_binary()
"""Type of all columns of encoded bytes: 64-bit offsets, since 2 GiB of rows overflow 32-bit ones."""

_CONTINUES: Final = 0x80
_SEVEN_BITS: Final = 0x7F


def varint(value: int) -> bytes:
    """One integer (of at most 64 bits) as an Avro ``int`` or ``long``."""
    rest = (value << 1) ^ (value >> 63)
    octets = bytearray()
    while rest >= _CONTINUES:
        octets.append(rest & _SEVEN_BITS | _CONTINUES)
        rest >>= 7
    octets.append(rest)
    return bytes(octets)


class ShortFields:
    """Short fields of all rows, side by side, gathered one byte column at a time.

    A field is laid out at the same place in every row; what a row does not have of it (a varint
    that is shorter there, a field that is absent) is cut out when the rows are put together.

    Args:
        rows: number of rows, at least 1.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._template = bytearray()  # one row: constants, and zeros where columns go
        self._columns: list[tuple[int, Octets]] = []
        self._masks: list[tuple[int, Flags]] = []

    def constant(self, octets: bytes) -> None:
        """Append the same bytes in every row."""
        self._template += octets

    def column(self, octets: Octets, present: Flags | None = None) -> None:
        """Append one byte per row, only in the rows that are ``present`` (None: in all)."""
        place = len(self._template)
        self._template.append(0)
        self._columns.append((place, octets))
        if present is not None:
            self._masks.append((place, present))

    def long(self, values: Longs, present: Flags | None = None) -> None:
        """Append a varint, only in the rows that are ``present`` (None: in all)."""
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
        """The rows' fields as bytes: None if there are none, a scalar if all rows agree, else an array."""
        if not self._columns:
            return pa.scalar(bytes(self._template), BYTES) if self._template else None
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
    """Where each of consecutive pieces begins, and where the last one ends."""
    borders = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    return borders


def bytes_array(borders: Longs, data: memoryview) -> Column:
    """An Arrow array of type :data:`BYTES` over borders and data, without a copy."""
    buffers = [None, pa.py_buffer(borders.data), pa.py_buffer(data)]
    return pa.Array.from_buffers(BYTES, len(borders) - 1, buffers)
