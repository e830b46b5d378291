"""The source of a topic directory."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from pathlib import Path
from typing import Final

from sinksdk.errors import (
    ConnectException,
    MissingSourceTopicException,
    OffsetOutOfRangeException,
    RetriableException,
)
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics.base import Position, Subscription
from sinksdk.topics.directory.layout import (
    TRANSACTIONS,
    FileStat,
    Listings,
    Unfinished,
    is_hidden,
    local_root,
)
from sinksdk.topics.directory.log import NUMBERED, entry_name, named_paths
from sinksdk.topics.directory.reader import DataFile, Footers, TopicDirectoryReader


class Visibility:
    """The visible files, as of one read of the transaction entries."""

    def __init__(self, entries: Mapping[str, str] | None) -> None:
        self._entries = entries
        self._folders: dict[str, list[str]] = {}
        for path in entries or ():
            # Folders are texts: with many files, creating a Path for each took longer than everything else.
            self._folders.setdefault(path.rpartition(os.sep)[0], []).append(path)

    def select(self, folder: str, found: Iterable[FileStat]) -> list[FileStat]:
        if self._entries is None:
            return list(found)
        stats = {stat.path: stat for stat in found}
        named = self._folders.get(folder, ())
        for path in named:
            if path not in stats:
                self._check_removed(path)
        return [stats[path] for path in named if path in stats]

    def check_folders(self, topic_folder: str, existing: Collection[str]) -> None:
        for folder, paths in self._folders.items():
            if folder not in existing and str(Path(folder).parent) == topic_folder:
                self._check_removed(paths[0])

    def _check_removed(self, path: str) -> None:
        entry = (self._entries or {})[path]
        # Entries are written after their files, and emptied or removed before them.
        if path in _named_by(entry):
            raise ConnectException(
                f"{entry} names {path}, which does not exist; write files before the entry that names them, "
                f"and empty the entry before you remove its files"
            )


_ALL: Final = Visibility(None)


class Transactions:
    def __init__(self, root: Path, listings: Listings, unfinished: Unfinished) -> None:
        self.folder = root / TRANSACTIONS
        self._listings = listings
        self._unfinished = unfinished
        self._known: dict[FileStat, tuple[str, ...]] = {}
        self._last: Visibility | None = None

    def read(self) -> Visibility:
        try:
            # Files must be listed after this, because entries are written after their files.
            self.folder.stat()
        except FileNotFoundError:
            return _ALL
        except OSError as error:
            # If the folder exists but cannot be read, it must not count as missing: uncommitted files would
            # become visible.
            raise ConnectException(f"{self.folder} cannot be read: {error.strerror}") from error
        return self._listings.of(str(self.folder), self._of_entries)

    def _of_entries(self, found: Iterable[os.DirEntry[str]]) -> Visibility:
        entries = (entry for entry in found if entry.name.endswith(".json") and not is_hidden(entry.name))
        stats = list(FileStat.of_all(entries))
        stats += self._unlisted(stats)
        known = {stat: self._known[stat] if stat in self._known else self._read(stat) for stat in stats}
        if self._last is None or known != self._known:
            self._last = Visibility({path: stat.path for stat, paths in known.items() for path in paths})
        self._known = known
        return self._last

    def _unlisted(self, stats: Iterable[FileStat]) -> Iterator[FileStat]:
        # A listing of a folder that changes may have a later entry without an earlier one. The earlier one's
        # records would then count as a gap, and never be read.
        names = (stat.path.rpartition(os.sep)[2] for stat in stats)
        numbers = {int(found[1]) for name in names if (found := NUMBERED.fullmatch(name))}
        if not numbers or len(numbers) > max(numbers) - min(numbers):
            return
        for number in sorted(set(range(min(numbers), max(numbers))) - numbers):
            with suppress(FileNotFoundError):  # a tool may remove an entry together with its files
                yield FileStat.of(self.folder / entry_name(number))

    def _read(self, stat: FileStat) -> tuple[str, ...]:
        try:
            paths = _named_by(stat.path)
        except ValueError as error:
            raise self._unfinished.judge(stat, f"{stat.path} is not a JSON document ({error})") from error
        self._unfinished.forget(stat.path)
        return paths


def _named_by(entry: str) -> tuple[str, ...]:
    try:
        content = json.loads(Path(entry).read_bytes())
    except FileNotFoundError:
        return ()
    root = Path(entry).parent.parent
    return tuple(str(root / path) for path in named_paths(content, entry))


@dataclass(frozen=True, slots=True, eq=False)
class _PartitionFiles:
    found: tuple[tuple[FileStat, ...], ...]  # the files in each folder of the partition
    visibility: Visibility
    stats: tuple[FileStat, ...]  # stats of the visible files
    files: Sequence[DataFile]  # visible files with records, by ascending offsets
    newest: FileStat | None  # stat of the last of ``files``

    def is_newest_unchanged(self) -> bool:
        try:
            # The newest file is checked, because writing it again in place does not change its folder's
            # modification time.
            return self.newest is None or FileStat.of(self.newest.path) == self.newest
        except FileNotFoundError:
            return False


class TopicDirectorySource:
    """Reads topics that are folders of Parquet files (a :class:`~sinksdk.topics.base.Source`)."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        unfinished_patience: float = 10.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.root = local_root(path)
        unfinished = Unfinished(unfinished_patience)
        # How long a file without a footer is retried: files with later offsets must not be read before it.
        self._patience = unfinished_patience
        self._clock = clock
        self._missed_since: dict[TopicPartition, float] = {}
        self._listings = Listings(self.root, clock)
        self._transactions = Transactions(self.root, self._listings, unfinished)
        self._footers = Footers(unfinished)
        self._seen: dict[TopicPartition, _PartitionFiles] = {}

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        try:
            return self._poll(subscription)
        except MissingSourceTopicException:
            raise
        except ConnectException:
            # Writing a file in place does not change its folder's modification time.
            self._listings.forget()
            raise

    def _poll(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        visibility, topics = self._transactions.read(), self._listings.topics()
        seen: dict[TopicPartition, _PartitionFiles] = {}
        for topic in sorted(self._select(subscription, topics)):
            for partition, folders in self._folders(topic, topics[topic], visibility).items():
                seen[partition] = self._read_partition(partition, folders, visibility)
        for partition, now in seen.items():
            before = self._seen.get(partition)
            if before is not None:
                _check_nothing_came_late(partition, before.files, now.files)
                self._check_nothing_vanished(partition, before.files, now.files)
        if seen != self._seen:
            self._footers.keep(stat for now in seen.values() for stat in now.stats)
        self._seen = seen
        return {partition: _extent(now.files) for partition, now in seen.items()}

    def _read_partition(
        self, partition: TopicPartition, folders: Sequence[str], visibility: Visibility
    ) -> _PartitionFiles:
        found = tuple(map(self._listings.files, folders))
        known = self._seen.get(partition)
        if known is not None and found == known.found and visibility is known.visibility:
            if known.is_newest_unchanged():
                return known
            self._listings.forget(folders)
            found = tuple(map(self._listings.files, folders))
        stats = tuple(chain.from_iterable(map(visibility.select, folders, found)))
        if known is not None and stats == known.stats:
            return replace(known, found=found, visibility=visibility)
        files = self._files(partition, stats)
        newest = next((stat for stat in stats if stat.path == files[-1].path), None) if files else None
        return _PartitionFiles(found, visibility, stats, files, newest)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002 - folders have none
        return {}

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        raise NotImplementedError  # a topic directory has no leader epochs

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        # The last offset of a topic directory has a record, so no gap needs to be found.
        return {partition: offsets.start for partition, offsets in ranges.items()}

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> TopicDirectoryReader:
        # All folders are listed again, because otherwise files that have replaced others might be missing.
        self._listings.forget((str(self._transactions.folder), str(self.root)))
        visibility, topics = self._transactions.read(), self._listings.topics()
        folders_of: dict[TopicPartition, list[str]] = {}
        for topic in dict.fromkeys(partition.topic for partition in ranges):
            self._listings.forget(topics.get(topic, ()))
            folders_of |= self._folders(topic, topics.get(topic, ()), visibility)
        wanted = {}
        for partition, offsets in ranges.items():
            folders = folders_of.get(partition, ())
            self._listings.forget(folders)
            files = self._read_partition(partition, folders, visibility).files
            _check_range(partition, offsets, files)
            before = self._seen.get(partition)
            if before is not None and (vanished := _vanished(before.files, files)) is not None:
                raise RetriableException(
                    f"{partition}: {vanished.path} was removed after the range was planned"
                )
            wanted[partition] = tuple(
                file for file in files if file.last >= offsets.start and file.first < offsets.end
            )
        return TopicDirectoryReader(wanted)

    def _check_nothing_vanished(
        self, partition: TopicPartition, before: Sequence[DataFile], now: Sequence[DataFile]
    ) -> None:
        # If records vanish from the middle, their offsets would count as a gap.
        vanished = _vanished(before, now)
        if vanished is None:
            self._missed_since.pop(partition, None)
            return
        since = self._missed_since.setdefault(partition, self._clock())
        message = (
            f"{partition}: {vanished.path} with offsets {vanished.first} to {vanished.last} was removed, but "
            f"not the files before it; put it back (only the oldest files of a partition may be removed)"
        )
        if self._clock() - since < self._patience:
            raise RetriableException(message)  # a writer may be replacing the file
        raise ConnectException(message)

    def _select(self, subscription: Subscription, topics: Collection[str]) -> frozenset[str]:
        try:
            return subscription.select(topics)
        except MissingSourceTopicException as error:
            missing = ", ".join(map(repr, error.topics))
            existing = ", ".join(map(repr, sorted(topics))) or "none"
            raise MissingSourceTopicException(
                error.topics,
                f"the topic directory {self.root} has no topic {missing} (it has: {existing}): create the "
                f"folder topic=<topic>, or remove it from the connector's 'topics'",
            ) from None

    def _folders(
        self, topic: str, topic_folders: Iterable[str], visibility: Visibility
    ) -> dict[TopicPartition, list[str]]:
        folders: dict[TopicPartition, list[str]] = {}
        for topic_folder in topic_folders:
            partitions = self._listings.partitions(topic, topic_folder)
            visibility.check_folders(topic_folder, partitions.values())
            for partition, folder in partitions.items():
                folders.setdefault(partition, []).append(folder)
        return folders

    def _files(self, partition: TopicPartition, stats: Iterable[FileStat]) -> list[DataFile]:
        read = (self._footers.read(stat, partition) for stat in stats)
        files = sorted((file for file in read if file), key=lambda file: (file.first, file.last))
        for earlier, later in pairwise(files):
            if later.first <= earlier.last:
                raise ConnectException(
                    f"{partition}: {earlier.path} has offsets {earlier.first} to {earlier.last} and "
                    f"{later.path} {later.first} to {later.last}: they overlap; remove the one whose "
                    f"records are duplicates"
                )
        return files


def _check_nothing_came_late(
    partition: TopicPartition, before: Sequence[DataFile], now: Sequence[DataFile]
) -> None:
    # If a new file's offsets are below the end, its records would never be read. A file that replaces others
    # overlaps them, but one that fills a gap does not.
    if not before or now is before:
        return
    known = {file.path for file in before}
    end = before[-1].last
    for file in now:
        is_late = file.path not in known and file.first <= end
        if is_late and not any(old.first <= file.last and file.first <= old.last for old in before):
            raise ConnectException(
                f"{partition}: offsets go backwards: the new file {file.path} has offsets {file.first} to "
                f"{file.last}, but {before[-1].path} already has offsets up to {end}; write new "
                f"records with offsets above all earlier ones"
            )


def _vanished(before: Sequence[DataFile], now: Sequence[DataFile]) -> DataFile | None:
    """Return a file whose offsets are gone although an older file still exists."""
    if not now or now is before:
        return None
    remaining = {file.path for file in now}
    for old in before:
        if old.path in remaining or old.first <= now[0].first:
            continue
        ends = (old.first, old.last)
        if not all(any(file.first <= end <= file.last for file in now) for end in ends):
            return old
    return None


def _check_range(partition: TopicPartition, offsets: OffsetRange, files: Sequence[DataFile]) -> None:
    begin, end = _extent(files)
    if offsets.start < offsets.end and (offsets.start < begin or offsets.end > end):
        raise OffsetOutOfRangeException(
            f"{partition}: offsets {offsets} cannot be read, since the topic directory now has only "
            f"[{begin}, {end}): files were removed before they were read; put them back"
        )


def _extent(files: Sequence[DataFile]) -> OffsetRange:
    return OffsetRange(files[0].first, files[-1].last + 1) if files else OffsetRange(0, 0)
