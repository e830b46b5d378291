"""Write to targets of simulated sources: the writers are real, the scheduler runs each operation."""

from __future__ import annotations

import errno
import os
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow.parquet as pq

from property_tests.simulation.world import World
from sinksdk import ConnectException, RetriableException, TopicPartition
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter
from sinksdk.source.positions import SourcePosition
from sinksdk.topics import Subscription, TopicDirectorySource
from sinksdk.topics.directory.layout import partition_of
from sinksdk.topics.directory.log import Disk, Entry, TransactionLog, entry_name
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryWriter
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

T = TypeVar("T")


class Row(NamedTuple):
    at: TopicPartition
    key: str
    value: str


class Place(ABC):
    def __init__(self) -> None:
        self.on_commit: Callable[[], None] = lambda: None

    @abstractmethod
    def writer(self, identity: str, connector: str) -> TransactionalWriter: ...

    @abstractmethod
    def offsets(self, connector: str) -> CommittedOffsets: ...

    @abstractmethod
    def fresh(self) -> list[Row]: ...

    @abstractmethod
    def positions(self, connector: str) -> Mapping[str, SourcePosition]: ...

    @abstractmethod
    def rows(self, topic: str) -> list[Row]: ...


class Memory(Place):
    def __init__(self, world: World, refused: Callable[[str], Exception] | None = None) -> None:
        super().__init__()
        self.topics = MemoryTopics(self._operate)
        self._refused = refused
        self._world = world
        self._read: Counter[TopicPartition] = Counter()

    def writer(self, identity: str, connector: str) -> TransactionalWriter:
        return MemoryWriter(self.topics, identity, connector)

    def offsets(self, connector: str) -> CommittedOffsets:
        return MemoryOffsets(self.topics, connector)

    def fresh(self) -> list[Row]:
        found = []
        for at, records in self.topics.logs.items():
            if len(records) > self._read[at]:
                found += [_row(at, r.key, r.value) for r in records[self._read[at] :]]
                self._read[at] = len(records)
        return found

    def positions(self, connector: str) -> Mapping[str, SourcePosition]:
        return self.topics.positions[connector]

    def rows(self, topic: str) -> list[Row]:
        return [
            _row(at, record.key, record.value)
            for at in sorted(self.topics.logs)
            if at.topic == topic
            for record in self.topics.logs[at]
        ]

    def _operate(self, what: str, effect: Callable[[], T]) -> T:
        def whole() -> T:
            result = effect()
            self.on_commit()
            return result

        return self._world.operate(what, whole, lost=RetriableException, refused=self._refused)


class Directory(Place):
    def __init__(self, world: World, root: Path) -> None:
        super().__init__()
        self._disk = SimulatedDisk(world, self._has_linked)
        self._world = world
        self._root = root
        self._log = TransactionLog(root)
        self._read = 0
        self._ends: Counter[TopicPartition] = Counter()

    def writer(self, identity: str, connector: str) -> TransactionalWriter:
        return TopicDirectoryWriter(self._root, identity, connector, now=self._world.time, disk=self._disk)

    def offsets(self, connector: str) -> CommittedOffsets:
        return TopicDirectoryOffsets(self._root, connector)

    def fresh(self) -> list[Row]:
        return [row for entry in self._new_entries() for name in entry.files for row in self._content(name)]

    def positions(self, connector: str) -> Mapping[str, SourcePosition]:
        return self._log.refresh().positions.get(connector, {})

    def rows(self, topic: str) -> list[Row]:
        if not (self._root / f"topic={topic}").is_dir():
            return []
        source = TopicDirectorySource(self._root)
        try:
            source.partitions(Subscription(regex=topic))
        except ConnectException as error:
            self._world.violation(f"the topic cannot be read any more: {error}")
        found = []
        for at in sorted(source._seen):
            self._ends[at] = 0
            for file in source._seen[at].files:
                found += self._content(str(Path(file.path).relative_to(self._root)))
        return found

    def _has_linked(self) -> None:
        self.on_commit()

    def _new_entries(self) -> Iterator[Entry]:
        while (path := self._root / "_transactions" / entry_name(self._read + 1)).exists():
            self._read += 1
            yield Entry.model_validate_json(path.read_bytes())

    def _content(self, name: str) -> Sequence[Row]:
        at = partition_of(name)
        table = pq.read_table(self._root / name, partitioning=None, columns=["offset", "key", "value"])
        offsets, keys, values = (column.to_pylist() for column in table.columns)
        if offsets != list(range(self._ends[at], self._ends[at] + len(offsets))):
            self._world.violation(f"{at} ends at {self._ends[at]}, and {name} holds offsets {offsets}")
        self._ends[at] += len(offsets)
        return [_row(at, *row) for row in zip(keys, values, strict=True)]


class SimulatedDisk(Disk):
    # The scheduler may switch or kill the process before and after each operation.
    def __init__(self, world: World, on_link: Callable[[], None]) -> None:
        self._world = world
        self._on_link = on_link

    def make_folder(self, folder: Path) -> None:
        self._step(f"makes {folder.name}", lambda: folder.mkdir(parents=True, exist_ok=True))

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        self._step(f"writes half of {path.name}", lambda: path.write_bytes(b"PAR1"))
        self._step(f"writes {path.name}", lambda: write(path))

    def link(self, existing: Path, name: Path) -> bool:
        def effect() -> bool:
            try:
                os.link(existing, name)
            except FileExistsError:
                self._world.happened["entry that somebody else was faster with"] += 1
                return False
            self._on_link()
            return True

        return self._step(f"links {name.name}", effect)

    def read(self, path: Path) -> bytes | None:
        return self._step(f"reads {path.name}", lambda: super(SimulatedDisk, self).read(path))

    def names(self, folder: Path) -> list[str]:
        return self._step(f"lists {folder.name}", lambda: super(SimulatedDisk, self).names(folder))

    def remove(self, path: Path) -> None:
        self._step(f"removes {path.name}", lambda: super(SimulatedDisk, self).remove(path))

    def _step(self, what: str, effect: Callable[[], T]) -> T:
        return self._world.operate(what, effect, lost=lambda what: OSError(errno.EIO, what))


def _row(at: TopicPartition, key: bytes | None, value: bytes | None) -> Row:
    return Row(at, (key or b"").decode(), (value or b"").decode())
