"""Names of folders and files in a topic directory, and what is found under them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final
from urllib.parse import unquote, urlsplit

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.records import TopicPartition

TRANSACTIONS: Final = "_transactions"
"""Name of the folder whose entries name the files that count."""

_TOPIC = "topic="
_PARTITION = "partition="
_HIDDEN_STARTS = ("_", ".")
_TEMPORARY_ENDS = (".crc", ".tmp", "._COPYING_")
_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f") | {chr(code) for code in range(1, 0x20)}  # as Hive and Spark do

_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""s3://bucket/x, and dbfs:/x, which Databricks writes with one slash; one letter alone is a drive."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class FileStat:
    """What tells one version of a file from another, without opening it.

    Args:
        path: absolute path.
        size: in bytes.
        mtime_ns: time of the last change, nanoseconds since the epoch.
    """

    path: str
    size: int
    mtime_ns: int

    @classmethod
    def of_all(cls, entries: Iterable[os.DirEntry[str]]) -> Iterator[FileStat]:
        """The versions that are there now; files removed since they were listed are left out."""
        for entry in entries:
            try:
                stat = entry.stat()
            except FileNotFoundError:
                continue
            yield cls(entry.path, stat.st_size, stat.st_mtime_ns)

    @classmethod
    def of(cls, path: Path | str) -> FileStat:
        """The version that is there now. Raises FileNotFoundError."""
        stat = os.stat(path)  # noqa: PTH116 - a Path for each of them would take longer
        return cls(str(path), stat.st_size, stat.st_mtime_ns)


def local_root(path: str | os.PathLike[str]) -> Path:
    """The absolute path of a topic directory given as a path or as a ``file:`` URL.

    Raises:
        ConfigException: a URL of another kind, or of another host.
    """
    text = os.fspath(path)
    if text.startswith("file:"):
        url = urlsplit(text)
        if url.netloc not in {"", "localhost"}:
            raise ConfigException(
                f"{text!r}: the topic directory must be on this host, not on {url.netloc!r}"
            )
        text = unquote(url.path)
    elif _URL.match(text):
        raise ConfigException(
            f"{text!r}: a topic directory is read from a file system; mount it and give its path"
        )
    return Path(os.path.abspath(text))  # noqa: PTH100 - Path.resolve would follow symbolic links


def is_hidden(name: str) -> bool:
    """Whether a name is one that readers do not look at: temporary, hidden, or about other files."""
    return name.startswith(_HIDDEN_STARTS) or name.endswith(_TEMPORARY_ENDS)


def partition_folder(partition: TopicPartition) -> str:
    """Path of a partition's folder relative to the directory."""
    topic = "".join(f"%{ord(c):02X}" if c in _ESCAPED else c for c in partition.topic)
    return f"{_TOPIC}{topic}/{_PARTITION}{partition.partition}"


def partition_of(path: str) -> TopicPartition:
    """The partition of a file whose path relative to the directory is ``topic=…/partition=…/…``."""
    topic, partition = PurePosixPath(path).parts[:2]
    return TopicPartition(unquote(topic.removeprefix(_TOPIC)), int(partition.removeprefix(_PARTITION)))


class Layout:
    """Finds topics, partitions and files."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._ignored: set[str] = set()

    def topics(self) -> dict[str, list[str]]:
        """Topics and their folders; two spellings of one name (``a%2Db``, ``a-b``) are one topic.

        Raises:
            ConnectException: the directory cannot be listed.
        """
        found: dict[str, list[str]] = {}
        for entry in self._entries(str(self._root)):
            if entry.name.startswith(_TOPIC) and entry.is_dir():  # a topic may be called x.tmp
                found.setdefault(unquote(entry.name.removeprefix(_TOPIC)), []).append(entry.path)
            elif not is_hidden(entry.name):
                self._warn(entry.path, "is no folder named topic=<topic>")
        return found

    def partitions(self, topic: str, folder: str) -> Iterator[tuple[TopicPartition, str]]:
        """The partitions in a topic's folder and their folders.

        Raises:
            ConnectException: a partition's folder has no number.
        """
        for entry in self._looked_at(folder):
            if not entry.name.startswith(_PARTITION) or not entry.is_dir():
                self._warn(entry.path, "is no folder named partition=<number>")
                continue
            number = entry.name.removeprefix(_PARTITION)
            if not number.isdecimal() or str(int(number)) != number:
                raise ConnectException(
                    f"topic {topic!r}: the folder {entry.path} is named after no partition number; name it "
                    f"partition=<number> (0, 1, 2, …) or move it away"
                )
            yield TopicPartition(topic, int(number)), entry.path

    def files(self, folder: str) -> Iterator[FileStat]:
        """The Parquet files in a partition's folder, as they are now."""
        return FileStat.of_all(entry for entry in self._looked_at(folder) if self._is_data(entry))

    def _looked_at(self, folder: str) -> list[os.DirEntry[str]]:
        return [entry for entry in self._entries(folder) if not is_hidden(entry.name)]

    def _entries(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return list(entries)
        except OSError as error:
            raise ConnectException(
                f"the topic directory's folder {folder} cannot be listed: {error.strerror}; create it, or "
                f"give the path of one that this process may read"
            ) from error

    def _is_data(self, entry: os.DirEntry[str]) -> bool:
        if entry.name.endswith(".parquet") and not entry.is_dir():
            return True
        self._warn(entry.path, "is no file named *.parquet")
        return False

    def _warn(self, path: str, why: str) -> None:
        if path not in self._ignored:
            self._ignored.add(path)
            _log.warning("%s is not read: it %s", path, why)
