"""A group: the files of a topic partition that are open at the same time and end together.

One write commits all their tokens with the group's end: each offset below it is in exactly one file of the
group or of an earlier one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from sinksdk import Token, TopicPartition
from sinksdk.connectors.s3_archiver.archive.header import Archived
from sinksdk.connectors.s3_archiver.archive.ranges import RunsByFile
from sinksdk.connectors.s3_archiver.files.file import ArchiveFile, FileFactory, FileKey
from sinksdk.connectors.s3_archiver.files.settings import Limits
from sinksdk.connectors.s3_archiver.formats.base import Rows
from sinksdk.connectors.s3_archiver.formats.columns import Codes, Longs
from sinksdk.connectors.s3_archiver.s3.upload import Upload

_WINDOW: Final = 256  # rows in which a late timestamp is searched first
_FEW: Final = 2**15  # files that an int16 can number


@dataclass(frozen=True, slots=True, eq=False)
class SortedRows:
    keys: Sequence[FileKey]
    codes: Codes | None  # for each row the index of its key in ``keys``; None: there is only one key
    offsets: Longs
    numbers: Longs
    timestamps: Longs | None  # milliseconds since the epoch; None: folders do not depend on time

    def __len__(self) -> int:
        return len(self.offsets)

    def order(self, cuts: Sequence[int]) -> Longs | None:
        """Return the rows sorted by file between one cut and the next; None if they are sorted already."""
        if self.codes is None:
            return None
        # numpy sorts int16 ten times as fast.
        codes = self.codes.astype(np.int16) if len(self.keys) < _FEW else self.codes
        borders = [0, *cuts, len(codes)]
        pieces = [
            start + np.argsort(codes[start:stop], kind="stable")
            for start, stop in itertools.pairwise(borders)
        ]
        order: Longs = np.concatenate(pieces)
        return None if bool((order[1:] > order[:-1]).all()) else order


class FileGroup:
    def __init__(self, partition: TopicPartition, factory: FileFactory, before: Archived, start: int) -> None:
        self._partition = partition
        self._factory = factory
        self._before = before  # the partition's archive without this group
        self._files: dict[FileKey, ArchiveFile] = {}
        self._objects = 0
        self.runs = RunsByFile()
        self.start = start
        self.end = start  # offset after the last row taken, whether or not a file has it
        self.records = 0
        self.base: int | None = None  # timestamp of the first record; None: folders do not depend on time
        self.last_path = ""
        self.skip = ""  # visible rows above the group, as text; set when the group ends

    @property
    def files(self) -> Sequence[ArchiveFile]:
        return tuple(self._files.values())  # ordered by the files' first records

    @property
    def uploads(self) -> Sequence[Upload]:
        return [each.upload for file in self._files.values() for each in file.objects]

    @property
    def archived(self) -> Archived:
        files = self._files.values()
        records = sum(file.records for file in files if file.holds_values)
        return self._before.with_group(self._objects, records, max(file.end for file in files), self.skip)

    @property
    def held(self) -> int:
        return sum(file.held for file in self._files.values()) + self.runs.nbytes

    def has(self, key: FileKey) -> bool:
        return key in self._files

    def take(
        self, batch: SortedRows, rows: Rows, order: Longs | None, start: int, stop: int
    ) -> Iterator[tuple[ArchiveFile, Rows, int]]:
        """Add the rows between two cuts; yield for each file its rows and their last offset."""
        if self.base is None and batch.timestamps is not None:
            self.base = int(batch.timestamps[start])
        self.records += stop - start
        self.end = int(batch.offsets[stop - 1]) + 1
        self.last_path = batch.keys[0 if batch.codes is None else batch.codes[stop - 1]].path
        if batch.codes is None:
            file = self._file(batch, batch.keys[0], start)
            self.runs.add(file.index, batch.offsets[start:stop], batch.numbers[start:stop])
            yield file, rows.slice(start, stop), self.end - 1
            return
        places = np.arange(start, stop) if order is None else order[start:stop]
        codes = batch.codes[places]
        borders = np.flatnonzero(np.diff(codes)) + 1
        begins, ends = np.concatenate(([0], borders)), np.append(borders, stop - start)
        lasts = batch.offsets[places[ends - 1]].tolist()
        numbered = np.zeros(len(batch.keys), np.int32)
        for begin, end, code, place, last in zip(
            begins.tolist(),
            ends.tolist(),
            codes[begins].tolist(),
            places[begins].tolist(),
            lasts,
            strict=True,
        ):
            file = self._file(batch, batch.keys[code], place)
            numbered[code] = file.index
            yield file, rows.slice(start + begin, start + end), last
        self.runs.add_several(
            batch.codes[start:stop], numbered, batch.offsets[start:stop], batch.numbers[start:stop]
        )

    def tokens(self) -> list[Token]:
        before = [self._before.files, self._before.records, self._before.end]
        is_one = self._objects == 1
        ranges = [] if is_one else self.runs.by_file(len(self._files))
        tokens: list[Token] = []
        for file, each in ((owner, each) for owner in self._files.values() for each in owner.objects):
            token = each.upload.token
            data: dict[str, Any] = {
                **token.data,
                "start": file.start,
                "end": file.end,
                "records": file.records,
                "before": before,
            }
            if not is_one:
                data |= {"group": [self.start, self.end], "ranges": ranges[file.index].to_text()}
            if each.view:
                data["view"] = each.view
            if self._before.skip and not tokens:
                data |= {"skip": self._before.skip, "withdrawn_to": self._before.withdrawn_to}
            tokens.append(Token(token.id, data))
        return tokens

    # -- inside ----------------------------------------------------------------------------------

    def _file(self, batch: SortedRows, key: FileKey, row: int) -> ArchiveFile:
        file = self._files.get(key)
        if file is None:
            start, number = int(batch.offsets[row]), int(batch.numbers[row])
            file = self._factory.begin(
                *(self._partition, key, start),
                number=number,
                before=self._before,
                index=len(self._files),
                place=self._objects,
            )
            self._objects += len(file.objects)
            self._files[key] = file
        return file


def cuts(batch: SortedRows, group: FileGroup | None, limits: Limits) -> list[int]:
    """Return the rows before which a group must end and the next one begins, never within an offset."""
    # Other limits, as of bytes, are known only once the batch is in the group.
    found: list[int] = []
    place, total = 0, len(batch)
    while place < total:
        stop = min(
            _by_count(batch, group, limits, place),
            _by_time(batch, group, limits, place),
            _by_folder(batch, group, limits, place),
            _by_files(batch, group, limits, place),
        )
        if stop >= total:
            break
        found.append(stop)
        place, group = stop, None
    return found


def _by_count(batch: SortedRows, group: FileGroup | None, limits: Limits, place: int) -> int:
    if limits.records is None:
        return len(batch)
    room = max(limits.records - (group.records if group else 0), 1)
    return _whole(batch, place + room)


def _by_time(batch: SortedRows, group: FileGroup | None, limits: Limits, place: int) -> int:
    timestamps = batch.timestamps
    if limits.interval is None or timestamps is None:
        return len(batch)
    base = int(timestamps[place]) if group is None or group.base is None else group.base
    begin, window = place, _WINDOW
    while begin < len(batch):
        late = np.flatnonzero(timestamps[begin : begin + window] >= base + limits.interval)
        if len(late):
            return _before(batch, group, place, begin + int(late[0]))
        begin, window = begin + window, 2 * window
    return len(batch)


def _by_folder(batch: SortedRows, group: FileGroup | None, limits: Limits, place: int) -> int:
    if not limits.is_of_one_folder or limits.interval is None or batch.timestamps is None:
        return len(batch)
    paths = [key.path for key in batch.keys]
    codes = np.zeros(len(batch), np.int32) if batch.codes is None else batch.codes
    before = paths[codes[place]] if group is None else group.last_path
    places = np.array([paths.index(path) for path in paths])[codes[place:]]
    if paths[codes[place]] != before:
        return _before(batch, group, place, place)
    others = np.flatnonzero(places != places[0])
    return _before(batch, group, place, place + int(others[0])) if len(others) else len(batch)


def _by_files(batch: SortedRows, group: FileGroup | None, limits: Limits, place: int) -> int:
    if limits.files is None:
        return len(batch)
    is_open = [group is not None and group.has(key) for key in batch.keys]
    room = max(limits.files - (len(group.files) if group else 0), 0)
    if len(is_open) - sum(is_open) <= room:
        return len(batch)
    codes = np.zeros(len(batch), np.int32) if batch.codes is None else batch.codes
    _, firsts = np.unique(codes[place:], return_index=True)
    new = sorted(place + int(first) for first in firsts if not is_open[int(codes[place + first])])
    return _before(batch, group, place, new[room]) if len(new) > room else len(batch)


def _whole(batch: SortedRows, stop: int) -> int:
    """Return ``stop``, moved up so that rows of one offset stay together."""
    if stop >= len(batch):
        return len(batch)
    return int(np.searchsorted(batch.offsets, batch.offsets[stop - 1], side="right"))


def _before(batch: SortedRows, group: FileGroup | None, place: int, row: int) -> int:
    """Return where a row's offset begins, or its end if the group would be empty otherwise."""
    start = int(np.searchsorted(batch.offsets, batch.offsets[row]))
    if start > place or (group is not None and start >= place):
        return max(start, place)
    return _whole(batch, place + 1)
