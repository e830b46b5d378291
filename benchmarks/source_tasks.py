"""Measure a source task per transaction and per record: ``python -m benchmarks.source_tasks``.

The engine with a writer to memory is the base of the ratios.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.table import Row, show
from sinksdk.engine import SystemClock, TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import CommittedOffsets, TransactionalWriter, transactional_id
from sinksdk.source import SourceConnectorConfig, SourceRecord, SourceTask
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryWriter
from sinksdk.topics.kafka import KafkaClient, KafkaOffsets, KafkaWriter, ensure_offsets_topic
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter
from tests.kafka.broker import serving
from tests.kafka.topics import create_topic

NAME: Final = TaskName("bench", 0)
TOPIC: Final = "bench"
# Numbers of polls, and records of each.
SHAPES: Final = ((300, 1), (20, 5_000))

Place = tuple[TransactionalWriter, CommittedOffsets]


class Counting(SourceTask):
    """Polls records of 100 bytes."""

    worker: WorkerSourceTask

    def __init__(self, polls: int, size: int) -> None:
        self.polls = polls
        self.size = size
        self.next = 0
        self.part = {"f": "a"}

    def poll(self) -> Sequence[SourceRecord] | None:
        if not self.polls:
            self.worker.stop()
            return None
        self.polls -= 1
        first, self.next = self.next, self.next + self.size
        return [SourceRecord(self.part, {"n": n + 1}, TOPIC, b"x" * 100) for n in range(first, self.next)]


@contextmanager
def memory() -> Iterator[Place]:
    topics = MemoryTopics()
    yield MemoryWriter(topics, "id", NAME.connector), MemoryOffsets(topics, NAME.connector)


@contextmanager
def directory() -> Iterator[Place]:
    # Files are synced to the disk of the working directory: a temporary directory may be in memory.
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        identity = transactional_id("bench", NAME)
        yield (
            TopicDirectoryWriter(folder, identity, NAME.connector),
            TopicDirectoryOffsets(folder, NAME.connector),
        )


@contextmanager
def kafka() -> Iterator[Place]:
    with serving() as broker:
        create_topic(broker.bootstrap, TOPIC)
        config, client = SourceConnectorConfig.parse({"name": NAME.connector}), KafkaClient(broker.bootstrap)
        ensure_offsets_topic(config, client)
        yield KafkaWriter.of(config, client, NAME), KafkaOffsets.of(config, client)


def seconds(place: Place, polls: int, size: int) -> float:
    task = Counting(polls, size)
    writer, offsets = place
    task.worker = WorkerSourceTask(task, NAME, None, writer=writer, offsets=offsets, clock=SystemClock())
    begun = time.perf_counter()
    outcome = task.worker.run()
    assert outcome.records == polls * size, outcome
    return time.perf_counter() - begun


def rows() -> Iterator[Row]:
    for polls, size in SHAPES:
        alone = 0.0
        for what in (memory, directory, kafka):
            with what() as place:
                took = seconds(place, polls, size)
            alone = alone or took
            each = f"{took / polls * 1e3:,.1f} ms a transaction, {polls * size / took:,.0f} records/s"
            yield Row.ratio(f"{what.__name__}: transactions of {size:,}", each, took / alone)


if __name__ == "__main__":
    show(list(rows()))
