"""Names of folders and files in a topic directory, and listings of them."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.offsets import TopicPartition, is_topic_name
from sinksdk.settings.addresses import local_path

TRANSACTIONS: Final = "_transactions"

_TOPIC = "topic="
_PARTITION = "partition="
_NUMBER: Final = re.compile("0|[1-9][0-9]{0,9}")
_HIDDEN_STARTS = ("_", ".")
_TEMPORARY_ENDS = (".crc", ".tmp", "._COPYING_")
# Hive and Spark escape the same characters.
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 0x20)}

# s3://bucket/x, and dbfs:/x, which Databricks writes with one slash; a single letter is a drive.
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")

# Two changes of a folder within this time may get the same modification time (FAT), in seconds.
_COARSE: Final = 2.0
# Seconds between comparisons of names in a folder whose modification time has not changed.
_COMPARE_NAMES_AFTER: Final = 30.0
_LIST_AFTER: Final = 300.0  # seconds between listings of such a folder

T = TypeVar("T")

_log = logging.getLogger(__name__)


class FileStat(NamedTuple):
    path: str  # an absolute path
    size: int
    mtime_ns: int

    @classmethod
    def of_all(cls, entries: Iterable[os.DirEntry[str]]) -> Iterator[FileStat]:
        for entry in entries:
            try:
                stat = entry.stat()
            except FileNotFoundError:  # the file was removed after it was listed
                continue
            yield cls(entry.path, stat.st_size, stat.st_mtime_ns)

    @classmethod
    def of(cls, path: Path | str) -> FileStat:
        stat = os.stat(path)  # noqa: PTH116 - a Path for each of them would take longer
        return cls(str(path), stat.st_size, stat.st_mtime_ns)


def local_root(path: str | os.PathLike[str]) -> Path:
    text = os.fspath(path)
    try:
        local = local_path(text)
    except ValueError as error:
        raise ConfigException(f"{text!r}: the topic directory {error}") from error
    if _URL.match(local):
        raise ConfigException(
            f"{text!r}: a topic directory must be a path in a file system; mount this storage and give its "
            f"path"
        )
    return Path(os.path.abspath(local))  # noqa: PTH100 - Path.resolve would follow symbolic links


def is_hidden(name: str) -> bool:
    return name.startswith(_HIDDEN_STARTS) or name.endswith(_TEMPORARY_ENDS)


def partition_folder(partition: TopicPartition) -> str:
    topic = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in partition.topic)
    return f"{_TOPIC}{topic}/{_PARTITION}{partition.partition}"


def partition_of(path: str) -> TopicPartition:
    # The path is relative to the topic directory.
    topic, partition = PurePosixPath(path).parts[:2]
    return TopicPartition(unquote(topic.removeprefix(_TOPIC)), int(partition.removeprefix(_PARTITION)))


def is_partition_number(text: str) -> bool:
    # A number has 31 bits, and no leading zeros.
    return bool(_NUMBER.fullmatch(text)) and int(text) < 2**31


class Unfinished:
    """Distinguishes unfinished files from broken ones, for writers that do not rename."""

    def __init__(self, patience: float, clock: Callable[[], float] = time.time) -> None:
        self._patience = patience
        self._clock = clock
        self._first_seen: dict[str, tuple[FileStat, float]] = {}

    def judge(self, stat: FileStat, problem: str) -> ConnectException:
        """Return a retriable error while the file may still be written, a fatal one afterwards."""
        now = self._clock()
        known, since = self._first_seen.get(stat.path, (None, now))
        if known != stat:
            since = now
            self._first_seen[stat.path] = (stat, now)
        # A modification time may be ahead of this host's clock.
        quiet = max(now - stat.mtime_ns / 1e9, now - since)
        if quiet < self._patience:
            return RetriableException(
                f"{problem}; it was changed {max(quiet, 0):.0f} s ago and may still be written"
            )
        return ConnectException(
            f"{problem}; it has not changed for {quiet:.0f} s: write it again (under a name that begins with "
            f"'_' or '.', renamed when it is complete) or move it away"
        )

    def forget(self, path: str) -> None:
        self._first_seen.pop(path, None)


@dataclass(slots=True)
class _Listed:
    stamp: tuple[int, ...]  # the folder's stamp before it was listed
    seen_at: float  # time at which this stamp was first seen
    at: float  # time of the listing
    compared_at: float  # time at which the names were last compared
    names: frozenset[str]
    value: Any  # the result for the folder's entries

    @property
    def is_settled(self) -> bool:
        """Whether the stamp is old enough that any later change of the folder must change it."""
        return self.at - self.seen_at >= _COARSE


class Listings:
    """Finds topics, partitions and files. Raises ConnectException if a folder cannot be listed."""

    def __init__(self, root: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._clock = clock
        self._known: dict[str, _Listed] = {}
        self._is_trusted = True
        self._ignored: set[str] = set()

    def topics(self) -> dict[str, list[str]]:
        """Return folders by topic, which may have two spellings (``a%2Db``, ``a-b``)."""
        return self.of(str(self._root), self._topics_in)

    def partitions(self, topic: str, folder: str) -> dict[TopicPartition, str]:
        return self.of(folder, lambda entries: dict(self._partitions_in(topic, entries)))

    def files(self, folder: str) -> tuple[FileStat, ...]:
        return self.of(folder, self._files_in)

    def of(self, folder: str, read: Callable[[list[os.DirEntry[str]]], T]) -> T:
        """Apply ``read`` to a folder's entries; return the same object while the result is equal."""
        stamp, now = _stamp(folder), self._clock()
        known = self._known.get(folder)
        is_same = known is not None and known.stamp == stamp
        if known is not None and is_same and self._is_still(folder, known, now):
            before: T = known.value
            return before
        entries = _entries(folder)
        value, names = read(entries), frozenset(entry.name for entry in entries)
        if known is not None:
            is_silent = is_same and known.is_settled and names != known.names
            if self._is_trusted and is_silent and _stamp(folder) == stamp:
                self._is_trusted = False
                _log.info(
                    "topic directory %s: files in %s changed, but the folder's modification time did not; "
                    "all folders are listed at every poll from now on",
                    self._root,
                    folder,
                )
            if value == known.value:
                value = known.value
        seen_at = known.seen_at if known is not None and is_same else now
        self._known[folder] = _Listed(stamp, seen_at, now, now, names, value)
        return value

    def forget(self, folders: Iterable[str] | None = None) -> None:
        for folder in list(self._known) if folders is None else folders:
            self._known.pop(folder, None)

    # Changed folders have a new modification time, except on object stores: there names are compared
    # periodically, and once they differ under an old time, each poll lists all folders.
    def _is_still(self, folder: str, known: _Listed, now: float) -> bool:
        if not (self._is_trusted and known.is_settled) or now - known.at >= _LIST_AFTER:
            return False
        if now - known.compared_at < _COMPARE_NAMES_AFTER:
            return True
        known.compared_at = now
        return frozenset(entry.name for entry in _entries(folder)) == known.names

    def _topics_in(self, entries: Iterable[os.DirEntry[str]]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for entry in entries:
            if (
                entry.name.startswith(_TOPIC) and entry.is_dir()
            ):  # checked before is_hidden, because a topic may be called x.tmp
                topic = unquote(entry.name.removeprefix(_TOPIC))
                if is_topic_name(topic):
                    found.setdefault(topic, []).append(entry.path)
                else:
                    self._warn(
                        entry.path, "does not name a topic that Kafka allows: a-z, A-Z, 0-9, '.', '_' and '-'"
                    )
            elif not is_hidden(entry.name):
                self._warn(entry.path, "is not a folder named topic=<topic>")
        return found

    def _partitions_in(
        self, topic: str, entries: Iterable[os.DirEntry[str]]
    ) -> Iterator[tuple[TopicPartition, str]]:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if not entry.name.startswith(_PARTITION) or not entry.is_dir():
                self._warn(entry.path, "is not a folder named partition=<number>")
                continue
            number = entry.name.removeprefix(_PARTITION)
            if not is_partition_number(number):
                raise ConnectException(
                    f"topic {topic!r}: the folder {entry.path} does not have a partition number; name it "
                    f"partition=<number> (0 to 2147483647) or move it away"
                )
            yield TopicPartition(topic, int(number)), entry.path

    def _files_in(self, entries: Iterable[os.DirEntry[str]]) -> tuple[FileStat, ...]:
        data = []
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.name.endswith(".parquet") and not entry.is_dir():
                data.append(entry)
            else:
                self._warn(entry.path, "is not a file named *.parquet")
        return tuple(sorted(FileStat.of_all(data)))

    def _warn(self, path: str, why: str) -> None:
        if path not in self._ignored:
            self._ignored.add(path)
            _log.warning("%s is skipped: it %s", path, why)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise ConnectException(
            f"the topic directory's folder {folder} cannot be listed: {error.strerror}; create it, or "
            f"give the path of one that this process may read"
        ) from error


def _stamp(folder: str) -> tuple[int, ...]:
    try:
        stat = os.stat(folder)  # noqa: PTH116 - a Path for each of them would take longer
    except OSError:
        return ()
    return stat.st_dev, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns
