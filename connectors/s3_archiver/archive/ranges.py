"""Runs of neighbouring rows of a topic partition, which tokens and commits hold as text.

An offset and a number among the rows of that offset identify a row: a transform may return several rows with
one offset.
"""

from __future__ import annotations

import base64
import itertools
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_HEAD: Final = 9  # bytes in front of the columns' widths
_NONE: Final = np.zeros(0, np.int64)


class RowRanges(NamedTuple):
    """Ascending runs of rows that do not touch; each includes its first and its last row."""

    first: Longs = _NONE
    first_number: Longs = _NONE
    last: Longs = _NONE
    last_number: Longs = _NONE

    @property
    def runs(self) -> int:
        return len(self.first)

    def beyond(self, offset: int) -> Self:
        """Return the rows at this offset or above."""
        start = int(np.searchsorted(self.last, offset))
        first, first_number = self.first[start:], self.first_number[start:]
        if len(first) and first[0] < offset:
            first, first_number = first.copy(), first_number.copy()
            first[0], first_number[0] = offset, 0
        return type(self)(first, first_number, self.last[start:], self.last_number[start:])

    def holds(self, offsets: Longs, numbers: Longs) -> Flags:
        if not self.runs or not len(offsets):
            return np.zeros(len(offsets), np.bool_)
        near = self.beyond(int(offsets[0]))  # the rows ascend
        low, most = int(offsets[0]), int(offsets[-1])
        stop = int(np.searchsorted(near.first, most, side="right"))
        if not stop:
            return np.zeros(len(offsets), np.bool_)
        first, first_number, last, last_number = (column[:stop] for column in near)
        stride = 1 + max(int(column.max()) for column in (numbers, first_number, last_number))
        # A row's offset and number as one integer, relative to the first offset so that the integer fits into
        # 64 bits.
        rows = (offsets - low) * stride + numbers
        starts = (first - low) * stride + first_number
        ends = (np.minimum(last, most + 1) - low) * stride + last_number
        place = np.searchsorted(starts, rows, side="right") - 1
        held: Flags = (place >= 0) & (rows <= ends[place])
        return held

    def covers(self, other: RowRanges) -> bool:
        """Return whether each offset of the other has at least one row here."""
        low, high = _merged(self.first, self.last)
        place = np.searchsorted(low, other.first, side="right") - 1
        return bool(((place >= 0) & (other.last <= high[place])).all()) if len(low) else not other.runs

    def to_text(self) -> str:
        # Each commit stores the runs, so they take few bytes: the gap before each run, and its length.
        if not self.runs:
            return ""
        gaps = self.first.copy()
        gaps[1:] -= self.last[:-1]
        gaps[0] = 0
        columns = [gaps, self.last - self.first]
        if self.first_number.any() or self.last_number.any():
            columns += [self.first_number, self.last_number]
        pieces = [struct.pack(f"<qB{len(columns)}B", self.first[0], len(columns), *map(_width, columns))]
        pieces += [column.astype(f"<u{_width(column)}").tobytes() for column in columns]
        return base64.b64encode(zlib.compress(b"".join(pieces), 3)).decode()

    @classmethod
    def of_text(cls, text: str) -> Self:
        if not text:
            return cls()
        try:
            data = zlib.decompress(base64.b64decode(text, validate=True))
            start, count = struct.unpack_from("<qB", data)
            widths = struct.unpack_from(f"<{count}B", data, _HEAD)
            runs = (len(data) - _HEAD - count) // sum(widths)
            places = np.cumsum([_HEAD + count, *(runs * width for width in widths)]).tolist()
            gaps, lengths, *numbers = [
                np.frombuffer(data, f"<u{width}", runs, place).astype(np.int64)
                for width, place in zip(widths, places, strict=False)
            ]
        except (zlib.error, struct.error, TypeError, ZeroDivisionError) as error:
            raise ValueError(f"cannot decode row ranges: {error}") from error
        lasts = start + np.cumsum(gaps + lengths)
        first_number, last_number = numbers or (_zeros(runs), _zeros(runs))
        return cls(lasts - lengths, first_number, lasts, last_number)

    @classmethod
    def union(cls, several: Iterable[RowRanges]) -> Self:
        # The runs of two files may overlap: a file's run includes rows that were skipped because other files
        # hold them.
        first, first_number, last, last_number = (
            np.concatenate(column) for column in zip(cls(), *several, strict=True)
        )
        if not len(first):
            return cls()
        low, stride = int(first.min()), 1 + int(max(first_number.max(), last_number.max()))
        starts = (first - low) * stride + first_number
        order = np.argsort(starts, kind="stable")
        starts, reach = starts[order], np.maximum.accumulate(((last - low) * stride + last_number)[order])
        begins = np.flatnonzero(np.concatenate((np.ones(1, np.bool_), starts[1:] > reach[:-1])))
        starts, ends = starts[begins], reach[np.append(begins[1:], len(order)) - 1]
        return cls(starts // stride + low, starts % stride, ends // stride + low, ends % stride)


@dataclass(frozen=True, slots=True)
class Skip:
    """Visible rows, to be skipped when they are read again."""

    of: Mapping[str, RowRanges] = field(default_factory=dict)  # runs by view; "" is the view of values

    def __bool__(self) -> bool:
        return any(ranges.runs for ranges in self.of.values())

    @property
    def end(self) -> int | None:
        return max((int(ranges.last[-1]) + 1 for ranges in self.of.values() if ranges.runs), default=None)

    def beyond(self, offset: int) -> Self:
        return type(self)({view: ranges.beyond(offset) for view, ranges in self.of.items()})

    def holds(self, views: Sequence[str], offsets: Longs, numbers: Longs) -> Flags:
        """Return which rows are visible, as one line of flags per view."""
        return np.array([self.of.get(view, _NO_ROWS).holds(offsets, numbers) for view in views])

    def covers(self, view: str, ranges: RowRanges) -> bool:
        return self.of.get(view, _NO_ROWS).covers(ranges)

    def to_text(self) -> str:
        texts = {view: ranges.to_text() for view, ranges in sorted(self.of.items()) if ranges.runs}
        return _BETWEEN_VIEWS.join(f"{view}{_OF}{text}" if view else text for view, text in texts.items())

    @classmethod
    def of_text(cls, text: str) -> Self:
        found = {}
        for each in filter(None, text.split(_BETWEEN_VIEWS)):
            view, _, ranges = each.rpartition(_OF)
            found[view] = RowRanges.of_text(ranges)
        return cls(found)

    @classmethod
    def union(cls, several: Iterable[Skip]) -> Self:
        listed = list(several)
        views = dict.fromkeys(view for skip in listed for view in skip.of)
        return cls({view: RowRanges.union(skip.of.get(view, _NO_ROWS) for skip in listed) for view in views})


_BETWEEN_VIEWS: Final = ";"
_OF: Final = ":"
_NO_ROWS: Final = RowRanges()


_RUN_BYTES: Final = 20  # bytes of a run: its file, its first and its last offset


class RunsByFile:
    def __init__(self) -> None:
        self._runs: list[tuple[npt.NDArray[np.int32], RowRanges]] = []
        self._last: list[int] = []  # the run that may still grow: its file, then the columns of RowRanges
        self.count = 0

    def add(self, file: int, offsets: Longs, numbers: Longs) -> None:
        end = [int(offsets[-1]), int(numbers[-1])]
        if self._last and self._last[0] == file:
            self._last[3:] = end
            return
        self._end_last()
        self._last = [file, int(offsets[0]), int(numbers[0]), *end]
        self.count += 1

    def add_several(
        self, codes: npt.NDArray[np.int32], files: npt.NDArray[np.int32], offsets: Longs, numbers: Longs
    ) -> None:
        """Add rows that go to several files: row ``i`` to ``files[codes[i]]``."""
        self._end_last()
        borders = np.flatnonzero(codes[1:] != codes[:-1])
        begins, ends = np.concatenate(([0], borders + 1)), np.append(borders, len(codes) - 1)
        nothing = _zeros(len(begins))
        is_numbered = bool(numbers.any())
        self._runs.append(
            (
                files[codes[begins]],
                RowRanges(
                    offsets[begins],
                    numbers[begins] if is_numbered else nothing,
                    offsets[ends],
                    numbers[ends] if is_numbered else nothing,
                ),
            )
        )
        self.count += len(begins)

    @property
    def nbytes(self) -> int:
        return self.count * _RUN_BYTES

    def by_file(self, files: int) -> list[RowRanges]:
        self._end_last()
        file_of_run = np.concatenate([found for found, _ in self._runs])
        if files <= np.iinfo(np.int16).max:
            file_of_run = file_of_run.astype(np.int16)  # numpy sorts int16 ten times as fast
        order = np.argsort(file_of_run, kind="stable")
        borders = np.searchsorted(file_of_run[order], np.arange(files + 1)).tolist()
        columns = [
            np.concatenate(column)[order]
            for column in zip(*(ranges for _, ranges in self._runs), strict=True)
        ]
        return [
            RowRanges(*(column[begin:end] for column in columns))
            for begin, end in itertools.pairwise(borders)
        ]

    def _end_last(self) -> None:
        if self._last:
            file, *row = self._last
            self._runs.append(
                (np.array([file], np.int32), RowRanges(*(np.array([number], np.int64) for number in row)))
            )
            self._last = []


def numbers_of(offsets: Longs) -> Longs:
    """Number the rows of each offset from 0; the batch divides no offset."""
    is_again = offsets[1:] == offsets[:-1]
    if not is_again.any():
        return _zeros(len(offsets))
    places = np.arange(len(offsets))
    starts = np.where(np.concatenate((np.ones(1, np.bool_), ~is_again)), places, 0)
    numbers: Longs = places - np.maximum.accumulate(starts)
    return numbers


def _zeros(count: int) -> Longs:
    # A broadcast number takes no memory for each row.
    return np.broadcast_to(np.int64(0), count)


def _merged(first: Longs, last: Longs) -> tuple[Longs, Longs]:
    if not len(first):
        return first, last
    reach = np.maximum.accumulate(last)
    is_new = np.concatenate((np.ones(1, np.bool_), first[1:] > reach[:-1] + 1))
    starts = np.flatnonzero(is_new)
    return first[starts], reach[np.append(starts[1:], len(first)) - 1]


def _width(column: Longs) -> int:
    most = int(column.max()).bit_length()
    return next(width for width in (1, 2, 4, 8) if most <= width * 8)
