"""Rows of a topic partition, as runs: a token says so which are its file's, a commit which to pass over.

A row is told by its offset and its number among the rows of that offset, of which there are several only
where a transform has made them.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_PLAIN, _NUMBERED = 0, 1
_SEVEN_BITS: Final = 0x7F
_NONE: Final = np.zeros(0, np.int64)


class RowRanges(NamedTuple):
    """Runs of rows, ascending, none of which touches another: each from one row to another, both included.

    Args:
        first: offset of each run's first row.
        first_number: its number among the rows of that offset.
        last: offset of each run's last row.
        last_number: its number among the rows of that offset.
    """

    first: Longs = _NONE
    first_number: Longs = _NONE
    last: Longs = _NONE
    last_number: Longs = _NONE

    @property
    def runs(self) -> int:
        """Number of runs."""
        return len(self.first)

    def beyond(self, offset: int) -> Self:
        """What of it is at this offset or above."""
        start = int(np.searchsorted(self.last, offset))
        first, first_number = self.first[start:], self.first_number[start:]
        if len(first) and first[0] < offset:
            first, first_number = first.copy(), first_number.copy()
            first[0], first_number[0] = offset, 0
        return type(self)(first, first_number, self.last[start:], self.last_number[start:])

    def holds(self, offsets: Longs, numbers: Longs) -> Flags:
        """Which rows it holds; they ascend."""
        if not self.runs or not len(offsets):
            return np.zeros(len(offsets), np.bool_)
        near = self.beyond(int(offsets[0]))
        low, most = int(offsets[0]), int(offsets[-1])
        stop = int(np.searchsorted(near.first, most, side="right"))
        if not stop:
            return np.zeros(len(offsets), np.bool_)
        first, first_number, last, last_number = (column[:stop] for column in near)
        beside = 1 + max(int(column.max()) for column in (numbers, first_number, last_number))
        rows = (offsets - low) * beside + numbers
        starts = (first - low) * beside + first_number
        ends = (np.minimum(last, most + 1) - low) * beside + last_number
        place = np.searchsorted(starts, rows, side="right") - 1
        held: Flags = (place >= 0) & (rows <= ends[place])
        return held

    def covers(self, other: RowRanges) -> bool:
        """Whether it holds at least a row of each offset of others."""
        low, high = _merged(self.first, self.last)
        place = np.searchsorted(low, other.first, side="right") - 1
        return bool(((place >= 0) & (other.last <= high[place])).all()) if len(low) else not other.runs

    def to_text(self) -> str:
        """As part of a token or of a commit's metadata; empty for no rows."""
        if not self.runs:
            return ""
        gaps = self.first - np.concatenate((np.zeros(1, np.int64), self.last[:-1]))
        columns = [gaps, self.last - self.first]
        is_numbered = bool(self.first_number.any() or self.last_number.any())
        if is_numbered:
            columns += [self.first_number, self.last_number]
        numbers = np.stack(columns, axis=1).ravel().view(np.uint64)
        kind = bytes((_NUMBERED if is_numbered else _PLAIN,))
        return base64.b64encode(zlib.compress(kind + _varints(numbers))).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        """Read it back. Raises ValueError for what is no such text."""
        if not text:
            return cls()
        try:
            data = zlib.decompress(base64.b64decode(text, validate=True))
        except zlib.error as error:
            raise ValueError(str(error)) from error
        numbers = _numbers(data[1:])
        width = 4 if data[0] == _NUMBERED else 2
        columns = numbers.reshape(-1, width).T
        ends = np.cumsum(columns[0] + columns[1])
        nothing = np.zeros(len(ends), np.int64)
        first_number, last_number = (columns[2], columns[3]) if width > 2 else (nothing, nothing)  # noqa: PLR2004 - columns
        return cls(ends - columns[1], first_number, ends, last_number)

    @classmethod
    def union(cls, several: Iterable[RowRanges]) -> Self:
        """All rows of some ranges that have none in common."""
        columns = [np.concatenate(column) for column in zip(cls(), *several, strict=True)]
        order = np.lexsort((columns[1], columns[0]))
        return cls(*(column[order] for column in columns))


def numbers_of(offsets: Longs) -> Longs:
    """The number of each row among those of its offset; all rows of an offset are there."""
    numbers = np.zeros(len(offsets), np.int64)
    is_again = offsets[1:] == offsets[:-1]
    if is_again.any():
        places = np.arange(len(offsets))
        starts = np.where(np.concatenate((np.ones(1, np.bool_), ~is_again)), places, 0)
        numbers[:] = places - np.maximum.accumulate(starts)
    return numbers


def _merged(first: Longs, last: Longs) -> tuple[Longs, Longs]:
    """Ascending runs of offsets, those that touch as one."""
    if not len(first):
        return first, last
    reach = np.maximum.accumulate(last)
    is_new = np.concatenate((np.ones(1, np.bool_), first[1:] > reach[:-1] + 1))
    starts = np.flatnonzero(is_new)
    return first[starts], reach[np.append(starts[1:], len(first)) - 1]


def _varints(values: npt.NDArray[np.uint64]) -> bytes:
    """Seven bits to a byte, lowest first, the high bit set in all bytes but the last."""
    width = max((int(values.max()).bit_length() + 6) // 7, 1)
    places = np.uint64(7) * np.arange(width, dtype=np.uint64)
    rest = values[:, np.newaxis] >> places
    used = rest > 0
    used[:, 0] = True
    octets = (rest & np.uint64(_SEVEN_BITS)).astype(np.uint8)
    octets[:, :-1] |= used[:, 1:].astype(np.uint8) << np.uint8(7)
    return octets[used].tobytes()


def _numbers(data: bytes) -> Longs:
    octets = np.frombuffer(data, np.uint8)
    is_last = octets <= _SEVEN_BITS
    if not len(octets) or not is_last[-1]:
        message = "it ends within a number"
        raise ValueError(message)
    starts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(is_last)[:-1] + 1))
    places = np.arange(len(octets)) - np.repeat(starts, np.diff(np.append(starts, len(octets))))
    shifted = (octets & _SEVEN_BITS).astype(np.uint64) << (np.uint64(7) * places.astype(np.uint64))
    return np.add.reduceat(shifted, starts).view(np.int64)
