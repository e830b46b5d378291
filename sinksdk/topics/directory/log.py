"""The log of a topic directory's transactions, to which several writers append."""

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
_CHECKPOINT: Final = re.compile(r"_checkpoint-\d{20}\.json")
_CHECKPOINT_EVERY: Final = 100  # entries between two checkpoints


def entry_name(number: int) -> str:
    return f"{number:020d}.json"


def named_paths(content: Any, entry: str) -> list[str]:
    paths = content.get("files") if isinstance(content, dict) else None
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ConnectException(
            f"{entry} is not a transaction entry: it must be "
            f'{{"files": ["topic=…/partition=…/….parquet", …]}}; '
            f"names of other files in this folder must not end with .json"
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
    topic: str
    partition: int
    start: int
    end: int


class WriterEpoch(_Model):
    id: str
    # Counts the take-overs of the id, and never falls from entry to entry. Attempt 0 is the take-over itself.
    epoch: int
    attempt: int = 0


class Position(_Model):
    connector: str
    partition: dict[str, Any]
    offset: dict[str, Any] | None


class Entry(_Model):
    """One transaction. Other tools' entries may lack ``extents``; ``nonce`` distinguishes writers."""

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
    number: int = 0
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    # The owner of each transactional id, with its last attempt that succeeded.
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
        self.ends[at] = max(self.ends.get(at, 0), end)

    def checkpoint(self) -> _Checkpoint:
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
    def make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self.make_folder(folder.parent)
        with suppress(FileExistsError):  # another writer has created the file
            folder.mkdir()
        _sync(folder.parent)

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        write(path)
        _sync(path)
        _sync(path.parent)

    def create(self, path: Path, content: bytes) -> bool:
        """Create a file with its whole content; False if its name exists."""
        temporary = path.with_name(f"_{uuid.uuid4().hex}.tmp")
        try:
            self.write(temporary, lambda new: new.write_bytes(content))
            # Of all writers, on any number of hosts, exactly one can create the link.
            return self.link(temporary, path)
        finally:
            self.remove(temporary)

    def link(self, existing: Path, name: Path) -> bool:
        try:
            os.link(existing, name)
        except FileExistsError:
            return False
        _sync(name.parent)
        return True

    def read(self, path: Path) -> bytes | None:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None

    def names(self, folder: Path) -> list[str]:
        try:
            return [path.name for path in folder.iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)


class TransactionLog:
    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        self.root = root
        self.disk = disk or Disk()
        self._folder = root / TRANSACTIONS
        self._state: LogState | None = None

    def create(self) -> None:
        if self._folder.is_dir():
            return
        # Without this check, files that no transaction names would become invisible.
        visible = self._visible_file()
        if visible is not None and not self._folder.is_dir():
            raise ConnectException(
                f"the topic directory {self.root} has files without transactions, such as {visible}: "
                f"readers would ignore them from now on; write transactions into a directory of their own"
            )
        self.disk.make_folder(self._folder)

    def can_create(self) -> bool:
        return self._folder.is_dir() or self._visible_file() is None or self._folder.is_dir()

    def _visible_file(self) -> Path | None:
        return next(self.root.glob("topic=*/partition=*/[!_.]*.parquet"), None)

    def refresh(self) -> LogState:
        state = self._state = self._state or self._read_checkpoint()
        while (content := self.disk.read(self._path(state.number + 1))) is not None:
            entry = self._parsed(content, self._path(state.number + 1))
            is_emptied = not entry.files and entry.writer is None  # a checkpoint has its former content
            if is_emptied and (later := self._read_checkpoint()).number > state.number:
                state = self._state = later
            else:
                self._apply(state, entry)
        return state

    # Creating the entry's file is the compare-and-set: the writer has read all earlier entries.
    def append(self, entry: Entry) -> bool:
        """Append an entry to the state of the last :meth:`refresh`; False if its number is taken."""
        state = self._state
        if state is None:
            raise RuntimeError("the log must be read before an entry is appended")
        path = self._path(state.number + 1)
        if not self.disk.create(path, entry.model_dump_json().encode()):
            # Another writer was faster; or this one was, but NFS lost the response and repeated the request.
            content = self.disk.read(path)
            if content is None or self._parsed(content, path).nonce != entry.nonce:
                return False
        self._apply(state, entry)
        if state.number % _CHECKPOINT_EVERY == 0:
            self._write_checkpoint(state.checkpoint())
        return True

    def _write_checkpoint(self, checkpoint: _Checkpoint) -> None:
        # The file is new each time, because a writer that was frozen here may still write an older
        # checkpoint.
        new = f"_checkpoint-{checkpoint.number:020d}.json"
        self.disk.create(self._folder / new, checkpoint.model_dump_json().encode())
        for name in self._checkpoints():
            if name < new:
                self.disk.remove(self._folder / name)

    def _checkpoints(self) -> list[str]:
        return sorted(filter(_CHECKPOINT.fullmatch, self.disk.names(self._folder)))

    def _apply(self, state: LogState, entry: Entry) -> None:
        state.apply(entry)
        if not entry.extents:  # an entry of another tool
            self._read_ends(state, entry)
        state.number += 1

    def _read_checkpoint(self) -> LogState:
        state = LogState()
        while checkpoints := self._checkpoints():
            path = self._folder / checkpoints[-1]
            # None: a later checkpoint has replaced this one.
            if (content := self.disk.read(path)) is not None:
                checkpoint = _valid(_Checkpoint, content, path)
                state.apply(checkpoint)
                state.number = checkpoint.number
                break
        names = [name for name in self.disk.names(self._folder) if not is_hidden(name)]
        numbers = {int(match[1]) for name in names if (match := NUMBERED.fullmatch(name))}
        if max(numbers, default=0) > state.number and state.number + 1 not in numbers:
            raise ConnectException(
                f"{self._folder} has no entry {entry_name(state.number + 1)}, but later ones: put it back "
                f"(entries that a checkpoint covers may be emptied; no entry may be removed)"
            )
        for name in names:  # entries whose names are no numbers belong to other tools
            if name.endswith(".json") and not NUMBERED.fullmatch(name):
                path = self._folder / name
                if (content := self.disk.read(path)) is not None:
                    self._read_ends(state, self._parsed(content, path))
        return state

    def _read_ends(self, state: LogState, entry: Entry) -> None:
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
        named_paths(json.loads(content), str(path))  # the writer refuses paths that readers would refuse
        return entry


def _valid(model: type[M], content: bytes, path: Path) -> M:
    try:
        return model.model_validate(json.loads(content))
    except (ValueError, ValidationError) as error:
        raise ConnectException(f"{path} is not an entry of a topic directory's log: {error}") from error


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
