"""Report the operations of each writer and offset reader to the reader of the target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from property_tests.simulation.places import Place
from property_tests.simulation.reader import Reader
from property_tests.simulation.world import Process, World
from sinksdk import ConnectException, FencedException, RetriableException
from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter, transactional_id
from sinksdk.source import SourceConnectorConfig, SourceOffset, SourcePartition, SourceRecord
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata


class WatchedTarget:
    def __init__(self, place: Place, reader: Reader, world: World) -> None:
        self._place = place
        self._reader = reader
        self._world = world
        self.writers: list[WatchedWriter] = []

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        writer = self._place.writer(transactional_id(config.group_id, name), name.connector)
        watched = WatchedWriter(writer, self._reader, self._world, name.task)
        self.writers.append(watched)
        return watched

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        offsets = self._place.offsets(config.name)
        return WatchedOffsets(offsets, self._reader, self._world.current.threads[0])


class WatchedWriter:
    def __init__(self, writer: TransactionalWriter, reader: Reader, world: World, task: int) -> None:
        self._writer = writer
        self._reader = reader
        self._world = world
        self._task = task
        self.process = world.current.threads[0]
        self.is_a_tasks = self.process in reader.attempts
        self.is_fencing = False
        self.has_fenced = False
        self.is_closed = False

    def init(self) -> None:
        if not self.is_a_tasks and self._world.now() < self._reader.fencing_fails_until:
            self._world.happened["fencing failed"] += 1
            raise self._world.dice.choice((ConnectException, RetriableException))("not now")
        self.is_fencing = True
        self._writer.init()
        self.is_fencing, self.has_fenced = False, True
        self._reader.has_fenced(self.process, self._task)

    def begin(self) -> None:
        self._writer.begin()
        self._reader.open[self.process] = []

    def send(self, record: SourceRecord) -> None:
        with self._noted():
            self._writer.send(record)
        self._reader.open[self.process].append(record)

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        with self._noted():
            written = self._writer.commit(positions, forget)
        self._reader.open[self.process] = []
        return written

    def abort(self) -> None:
        with self._noted():
            self._writer.abort()
        self._reader.open[self.process] = []

    def close(self) -> None:
        self._writer.close()
        self.is_closed = True

    @contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
        except FencedException:
            self._reader.refused.add(self.process)
            raise


class WatchedOffsets(CommittedOffsets):
    def __init__(self, offsets: CommittedOffsets, reader: Reader, process: Process) -> None:
        self._offsets = offsets
        self._reader = reader
        self._process = process

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        found = self._offsets.offsets(partitions)
        for partition in partitions:
            self._reader.has_read(self._process, str(partition["table"]))
        return found

    def positions(self) -> Sequence[SourcePosition]:
        return self._offsets.positions()

    def close(self) -> None:
        self._offsets.close()
