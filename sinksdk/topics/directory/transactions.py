"""Entries that make several files appear at once."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, Final

from sinksdk.errors import ConnectException
from sinksdk.topics.directory.layout import TRANSACTIONS, FileStat, is_hidden
from sinksdk.topics.directory.unfinished import Unfinished

NUMBERED: Final = re.compile(r"(\d{20})\.json")
"""Names of entries in the log (:class:`~sinksdk.topics.directory.log.TransactionLog`)."""


def entry_name(number: int) -> str:
    """Name of an entry in the log."""
    return f"{number:020d}.json"


class Visibility:
    """Which files count, as of one look at the entries.

    Args:
        entries: by path of a file, the entry that names it; None where there are no transactions and
            all files count.
    """

    def __init__(self, entries: Mapping[str, str] | None) -> None:
        self._entries = entries
        self._folders: dict[str, list[str]] = {}
        for path in entries or ():
            # There may be a great many: a Path for each would take longer than all the rest of a look.
            self._folders.setdefault(path.rpartition(os.sep)[0], []).append(path)

    def select(self, folder: str, found: Iterable[FileStat]) -> list[FileStat]:
        """Those of the files found in a partition's folder that count.

        Raises:
            ConnectException: an entry names one that is not there.
        """
        if self._entries is None:
            return list(found)
        stats = {stat.path: stat for stat in found}
        named = self._folders.get(folder, ())
        for path in named:
            if path not in stats:
                self._check_removed(path)
        return [stats[path] for path in named if path in stats]

    def check_folders(self, topic_folder: str, there: Collection[str]) -> None:
        """Check that a topic's folder has every partition's folder that entries speak of.

        Raises:
            ConnectException: it has not.
        """
        for folder, paths in self._folders.items():
            if folder not in there and str(Path(folder).parent) == topic_folder:
                self._check_removed(paths[0])

    def _check_removed(self, path: str) -> None:
        """Entries are written after their files, and emptied or removed before them."""
        entry = (self._entries or {})[path]
        if _still_names(entry, path):
            raise ConnectException(
                f"{entry} names {path}, which is not there; write files before the entry that names them, "
                f"and empty the entry before its files are removed"
            )


_ALL: Final = Visibility(None)


class Transactions:
    """Reads ``_transactions/*.json``; each entry once for as long as it stays the same."""

    def __init__(self, root: Path, unfinished: Unfinished) -> None:
        self._root = root
        self._folder = root / TRANSACTIONS
        self._unfinished = unfinished
        self._known: dict[FileStat, tuple[str, ...]] = {}
        self._last: Visibility | None = None

    def look(self) -> Visibility:
        """Which files count now: the same object while they are the same.

        Files must be listed after it: entries come after their files.

        Raises:
            RetriableException: an entry is still being written.
            ConnectException: an entry has another form.
        """
        try:
            with os.scandir(self._folder) as listing:
                entries = [entry for entry in listing if entry.name.endswith(".json")]
        except FileNotFoundError:
            return _ALL
        stats = list(FileStat.of_all(entry for entry in entries if not is_hidden(entry.name)))
        stats += self._overlooked(stats)
        known = {stat: self._known[stat] if stat in self._known else self._read(stat) for stat in stats}
        if self._last is None or known != self._known:
            self._last = Visibility({path: stat.path for stat, paths in known.items() for path in paths})
        self._known = known
        return self._last

    def _overlooked(self, stats: Iterable[FileStat]) -> Iterator[FileStat]:
        """Entries that came while the folder was listed, of which a listing may show a later one only.

        The records of the one before it would be taken for a gap, and never be read.
        """
        names = (stat.path.rpartition(os.sep)[2] for stat in stats)
        numbers = {int(found[1]) for name in names if (found := NUMBERED.fullmatch(name))}
        if not numbers or len(numbers) > max(numbers) - min(numbers):
            return
        for number in sorted(set(range(min(numbers), max(numbers))) - numbers):
            with suppress(FileNotFoundError):  # removed with its files, which is allowed
                yield FileStat.of(self._folder / entry_name(number))

    def _read(self, stat: FileStat) -> tuple[str, ...]:
        try:
            content = json.loads(Path(stat.path).read_bytes())
        except FileNotFoundError:
            return ()  # removed while we looked
        except ValueError as error:
            problem = f"{stat.path} is no JSON document ({error})"
            raise self._unfinished.judge(stat, problem) from error
        self._unfinished.forget(stat.path)
        return tuple(str(self._root / path) for path in named_paths(content, stat.path))


def _still_names(entry: str, path: str) -> bool:
    try:
        content = json.loads(Path(entry).read_bytes())
    except FileNotFoundError:
        return False
    root = Path(entry).parent.parent
    return path in {str(root / name) for name in named_paths(content, entry)}


def named_paths(content: Any, entry: str) -> list[str]:
    """The files that an entry's content names, relative to the topic directory.

    Raises:
        ConnectException: it is none, or one of them is no data file's.
    """
    paths = content.get("files") if isinstance(content, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConnectException(
            f'{entry} is no transaction entry: it must be {{"files": ["topic=…/partition=…/….parquet", …]}}; '
            f"what else is in this folder must not end with .json"
        )
    for path in paths:
        parts = PurePosixPath(path).parts
        if [part.partition("=")[0] for part in parts[:-1]] != ["topic", "partition"]:
            raise ConnectException(
                f"{entry} names {path!r}; a file's path must be relative to the topic directory and of the "
                f"form topic=<topic>/partition=<number>/<name>.parquet"
            )
    return paths
