"""Transactions of a topic directory: a log to which several writers append.

Its entries have numbers. The writer that creates an entry has read all earlier ones, so the creation itself
is the compare-and-set. If another writer was faster it fails, and the state from the log (end offsets, owners
of transactional ids) is read again.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from sinksdk.errors import ConnectException
from sinksdk.offsets import TopicPartition
from sinksdk.source.positions import SourcePosition, partition_key
from sinksdk.topics.directory.layout import (
    TRANSACTIONS,
    FileStat,
    Unfinished,
    is_hidden,
    is_partition_number,
    partition_of,
)
from sinksdk.topics.directory.reader import Footers

NUMBERED: Final = re.compile(r"(\d{20})\.json")
"""Names of entries in the log."""
_CHECKPOINT: Final = re.compile(r"_checkpoint-\d{20}\.json")
_CHECKPOINT_EVERY: Final = 100  # entries


def entry_name(number: int) -> str:
    """Name of the entry of that number."""
    return f"{number:020d}.json"


def named_paths(content: Any, entry: str) -> list[str]:
    """The files that an entry's content names, relative to the topic directory.

    Raises:
        ConnectException: it is not an entry's, or a path is not a data file's.
    """
    paths = content.get("files") if isinstance(content, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConnectException(
            f'{entry} is no transaction entry: it must be {{"files": ["topic=…/partition=…/….parquet", …]}}; '
            f"what else is in this folder must not end with .json"
        )
    for path in paths:
        parts = PurePosixPath(path).parts
        folders = [part.partition("=") for part in parts[:-1]]
        if [name for name, *_ in folders] != ["topic", "partition"] or not is_partition_number(folders[1][2]):
            raise ConnectException(
                f"{entry} names {path!r}; a file's path must be relative to the topic directory and of the "
                f"form topic=<topic>/partition=<number>/<name>.parquet"
            )
    return paths


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


M = TypeVar("M", bound=_Model)


class Extent(_Model):
    """Offsets that a transaction appended to a partition; ``end`` is the offset after the last."""

    topic: str
    partition: int
    start: int
    end: int


class WriterEpoch(_Model):
    """Who wrote an entry.

    Args:
        id: transactional id.
        epoch: how often the id was taken over; epochs of an id never descend in the log.
        attempt: number of the transaction's attempt in this epoch; 0 for the entry that takes the id over.
    """

    id: str
    epoch: int
    attempt: int = 0


class Position(_Model):
    """How far a source was read; with no offset, as if nothing of it had been read."""

    connector: str
    partition: dict[str, Any]
    offset: dict[str, Any] | None


class Entry(_Model):
    """One transaction.

    Args:
        files: paths relative to the directory; they count from now on.
        extents: what is in these files; entries of other tools may lack it.
        writer: None without a transactional id.
        positions: source offsets that became durable with it.
        nonce: distinguishes it from another writer's entry of the same number.
    """

    files: tuple[str, ...] = ()
    extents: tuple[Extent, ...] = ()
    writer: WriterEpoch | None = None
    positions: tuple[Position, ...] = ()
    nonce: str = Field(default_factory=lambda: uuid.uuid4().hex)


class _Checkpoint(_Model):
    number: int
    extents: tuple[Extent, ...]
    writers: tuple[WriterEpoch, ...]
    positions: tuple[Position, ...]


@dataclass
class LogState:
    """What follows from the log up to an entry.

    Args:
        number: of that entry; 0 for an empty log.
        ends: the offset after the last of each partition.
        writers: by transactional id, its owner and the last attempt that succeeded.
        positions: by connector and source partition, how far the source was read.
    """

    number: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    writers: dict[str, WriterEpoch] = field(default_factory=dict)
    positions: dict[str, dict[str, SourcePosition]] = field(default_factory=dict)

    def apply(self, entry: Entry | _Checkpoint) -> None:
        for extent in entry.extents:
            self.extend(TopicPartition(extent.topic, extent.partition), extent.end)
        writers = entry.writers if isinstance(entry, _Checkpoint) else filter(None, [entry.writer])
        self.writers |= {writer.id: writer for writer in writers}
        for position in entry.positions:
            known = self.positions.setdefault(position.connector, {})
            key = partition_key(position.partition)
            if position.offset is None:
                known.pop(key, None)
            else:
                known[key] = SourcePosition(position.partition, position.offset)

    def extend(self, at: TopicPartition, end: int) -> None:
        """A partition ends at least there."""
        self.ends[at] = max(self.ends.get(at, 0), end)

    def checkpoint(self) -> _Checkpoint:
        """All of it, from which the log can be read on."""
        return _Checkpoint(
            number=self.number,
            extents=tuple(
                Extent(topic=at.topic, partition=at.partition, start=0, end=end)
                for at, end in self.ends.items()
            ),
            writers=tuple(self.writers.values()),
            positions=tuple(
                Position(connector=connector, partition=dict(read.partition), offset=dict(read.offset))
                for connector, known in self.positions.items()
                for read in known.values()
            ),
        )


class Disk:
    """A file system. Raises OSError."""

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents unless they exist."""
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        with suppress(FileExistsError):  # created meanwhile
            folder.mkdir()
        _sync(folder.parent)

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        """Write a file that is not visible to readers yet."""
        write(path)
        _sync(path)
        _sync(path.parent)

    def create(self, path: Path, content: bytes) -> bool:
        """Create a file with its whole content; False if one of its name exists.

        Of any number of writers, on any number of hosts that share the file system, one succeeds.
        """
        temporary = path.with_name(f"_{uuid.uuid4().hex}.tmp")
        try:
            self.write(temporary, lambda new: new.write_bytes(content))
            return self.link(temporary, path)
        finally:
            self.remove(temporary)

    def link(self, existing: Path, name: Path) -> bool:
        """Give a file a second name; False if that is taken."""
        try:
            os.link(existing, name)
        except FileExistsError:
            return False
        _sync(name.parent)
        return True

    def read(self, path: Path) -> bytes | None:
        """None where there is no file."""
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: Path) -> list[str]:
        """What is in a folder; nothing if it does not exist."""
        try:
            return [path.name for path in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: Path) -> None:
        """Remove a file, if it exists."""
        path.unlink(missing_ok=True)


class TransactionLog:
    """A topic directory's transactions, read on from where they were read before. Raises OSError too."""

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()
        self._folder = root / TRANSACTIONS
        self._state: LogState | None = None

    def create(self) -> None:
        """Make the directory one with transactions, if it is not.

        Raises:
            ConnectException: it holds files without transactions, which would no longer count.
        """
        if self._folder.is_dir():
            return
        counting = self._counting()
        if counting is not None and not self._folder.is_dir():
            raise ConnectException(
                f"the topic directory {self.root} holds files without transactions, as {counting}: readers "
                f"would not count them any more; write transactions into a directory of their own"
            )
        self.disk.make_folder(self._folder)

    def can_create(self) -> bool:
        """Whether it is one with transactions, or may become one."""
        return self._folder.is_dir() or self._counting() is None or self._folder.is_dir()

    def _counting(self) -> Path | None:
        """A file that counts where there are no transactions."""
        return next(self.root.glob("topic=*/partition=*/[!_.]*.parquet"), None)

    def refresh(self) -> LogState:
        """What follows from all entries there are now.

        Raises:
            ConnectException: an entry has another form, or is missing though a later one is there.
        """
        state = self._state = self._state or self._opened()
        while (content := self.disk.read(self._path(state.number + 1))) is not None:
            entry = self._parsed(content, self._path(state.number + 1))
            is_emptied = not entry.files and entry.writer is None  # its content is in a checkpoint
            if is_emptied and (later := self._opened()).number > state.number:
                state = self._state = later
            else:
                self._take(state, entry)
        return state

    def append(self, entry: Entry) -> bool:
        """Append an entry to what :meth:`refresh` saw last; False if another entry has its number by now."""
        state = self._state
        if state is None:
            message = "the log is appended to before it was read"
            raise RuntimeError(message)
        path = self._path(state.number + 1)
        if not self.disk.create(path, entry.model_dump_json().encode()):
            # Another writer was faster; or this one, and the answer was lost (NFS asks again).
            content = self.disk.read(path)
            if content is None or self._parsed(content, path).nonce != entry.nonce:
                return False
        self._take(state, entry)
        if state.number % _CHECKPOINT_EVERY == 0:
            self._keep(state.checkpoint())
        return True

    def _keep(self, checkpoint: _Checkpoint) -> None:
        """Write it beside the one before, never over it: a writer frozen in here may have an old one."""
        new = f"_checkpoint-{checkpoint.number:020d}.json"
        self.disk.create(self._folder / new, checkpoint.model_dump_json().encode())
        for name in self._checkpoints():
            if name < new:
                self.disk.remove(self._folder / name)

    def _checkpoints(self) -> list[str]:
        return sorted(filter(_CHECKPOINT.fullmatch, self.disk.names(self._folder)))

    def _take(self, state: LogState, entry: Entry) -> None:
        state.apply(entry)
        if not entry.extents:
            self._look_up(state, entry)
        state.number += 1

    def _opened(self) -> LogState:
        """From the last checkpoint, and from entries without a number, which are other tools'."""
        state = LogState()
        while checkpoints := self._checkpoints():
            path = self._folder / checkpoints[-1]
            if (content := self.disk.read(path)) is not None:  # else a later one has taken its place
                checkpoint = _valid(_Checkpoint, content, path)
                state.apply(checkpoint)
                state.number = checkpoint.number
                break
        names = [name for name in self.disk.names(self._folder) if not is_hidden(name)]
        numbers = {int(match[1]) for name in names if (match := NUMBERED.fullmatch(name))}
        if max(numbers, default=0) > state.number and state.number + 1 not in numbers:
            raise ConnectException(
                f"{self._folder} has no entry {entry_name(state.number + 1)}, but later ones: put it back "
                f"(entries that a checkpoint covers may be emptied, none may be removed)"
            )
        for name in names:
            if name.endswith(".json") and not NUMBERED.fullmatch(name):
                path = self._folder / name
                if (content := self.disk.read(path)) is not None:
                    self._look_up(state, self._parsed(content, path))
        return state

    def _look_up(self, state: LogState, entry: Entry) -> None:
        """The ends of an entry's files, where it does not say them itself."""
        footers = Footers(Unfinished(0.0))
        for name in entry.files:
            path = self.root / name
            at = partition_of(name)
            if path.exists() and (file := footers.read(FileStat.of(path), at)):
                state.extend(at, file.last + 1)

    def _path(self, number: int) -> Path:
        return self._folder / entry_name(number)

    def _parsed(self, content: bytes, path: Path) -> Entry:
        entry = _valid(Entry, content, path)
        named_paths(json.loads(content), str(path))  # what stops readers stops writers, too
        return entry


def _valid(model: type[M], content: bytes, path: Path) -> M:
    try:
        return model.model_validate(json.loads(content))
    except (ValueError, ValidationError) as error:
        raise ConnectException(f"{path} is no entry of a topic directory's log: {error}") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
