"""Entries that make several files appear at once."""

from __future__ import annotations

import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

from sinksdk.errors import ConnectException
from sinksdk.sources.topic_directory.layout import TRANSACTIONS, FileStat, is_hidden
from sinksdk.sources.topic_directory.unfinished import Unfinished


class Transactions:
    """Reads ``_transactions/*.json``; each entry once for as long as it stays the same.

    Args:
        root: the topic directory.
        unfinished: judges entries that cannot be read yet.
    """

    def __init__(self, root: Path, unfinished: Unfinished) -> None:
        self._root = root
        self._folder = root / TRANSACTIONS
        self._unfinished = unfinished
        self._known: dict[FileStat, tuple[str, ...]] = {}

    def files(self) -> dict[str, str] | None:
        """Absolute path of each file that counts, and the entry that names it; None: all files count.

        Raises:
            RetriableException: an entry is still being written.
            ConnectException: an entry has another form.
        """
        try:
            with os.scandir(self._folder) as entries:
                stats = [
                    FileStat.of(entry)
                    for entry in entries
                    if entry.name.endswith(".json") and not is_hidden(entry.name)
                ]
        except FileNotFoundError:
            return None
        self._known = {stat: self._known.get(stat) or self._read(stat) for stat in stats}
        return {path: stat.path for stat, paths in self._known.items() for path in paths}

    def _read(self, stat: FileStat) -> tuple[str, ...]:
        try:
            content = json.loads(Path(stat.path).read_bytes())
        except FileNotFoundError:
            return ()  # removed while we looked
        except ValueError as error:
            problem = f"{stat.path} is no JSON document ({error})"
            raise self._unfinished.judge(stat, problem) from error
        self._unfinished.forget(stat.path)
        return tuple(str(self._root / path) for path in _paths(content, stat.path))


def _paths(content: Any, entry: str) -> list[str]:
    paths = content.get("files") if isinstance(content, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConnectException(
            f'{entry} is no transaction entry: it must be {{"files": ["topic=…/partition=…/….parquet", …]}}'
        )
    for path in paths:
        pure = PurePosixPath(path)
        if pure.is_absolute() or ".." in pure.parts:
            raise ConnectException(
                f"{entry} names {path!r}: paths must be relative to the topic directory, without '..'"
            )
    return paths
