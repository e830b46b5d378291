"""Source tasks that write one topic directory, with crashes, zombies and lost answers at every step on disk."""

from __future__ import annotations

import errno
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, TypeVar

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import TopicPartition
from sinksdk.engine.options import TaskName
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.engine.source_options import SourceOptions
from sinksdk.engine.source_outcome import End
from sinksdk.engine.writer import transactional_id
from sinksdk.source import SourceRecord, SourceTask
from sinksdk.sources import Subscription, TopicDirectory
from sinksdk.sources.topic_directory.disk import Disk
from sinksdk.testing.simulation.world import Chaos, World
from sinksdk.writers.topic_directory import TopicDirectoryOffsets, TopicDirectoryWriter

T = TypeVar("T")

exercised = EXERCISED["topic directory writers"]
TASKS: Final = 2
NUMBERS: Final = 9
TOPIC: Final = TopicPartition("numbers", 0)


def lost(what: str) -> OSError:
    return OSError(errno.EIO, what)


class SimulatedDisk(Disk):
    """The real file system, one step at a time: before and after each, others go on, or the process dies."""

    def __init__(self, world: World) -> None:
        self.world = world

    def step(self, what: str, effect: Callable[[], T]) -> T:
        return self.world.operate(what, effect, lost=lost)

    def make_folder(self, folder: Path) -> None:
        self.step(f"makes {folder.name}", lambda: folder.mkdir(parents=True, exist_ok=True))

    def write(self, path: Path, write: Callable[[Path], object]) -> None:
        self.step(f"writes half of {path.name}", lambda: path.write_bytes(b"PAR1"))
        self.step(f"writes {path.name}", lambda: write(path))

    def link(self, existing: Path, name: Path) -> bool:
        def effect() -> bool:
            try:
                os.link(existing, name)
            except FileExistsError:
                exercised["entries that somebody else was faster with"] += 1
                return False
            return True

        return self.step(f"links {name.name}", effect)

    def replace(self, path: Path, content: bytes) -> None:
        self.step(f"replaces {path.name}", lambda: path.write_bytes(content))

    def read(self, path: Path) -> bytes | None:
        return self.step(f"reads {path.name}", lambda: super(SimulatedDisk, self).read(path))

    def names(self, folder: Path) -> list[str]:
        return self.step(f"lists {folder.name}", lambda: super(SimulatedDisk, self).names(folder))

    def remove(self, path: Path) -> None:
        self.step(f"removes {path.name}", lambda: super(SimulatedDisk, self).remove(path))


class Numbers(SourceTask):
    """Counts from where it got to; each poll has a few, in its own source partition."""

    def __init__(self, number: int, worker: Callable[[], WorkerSourceTask], dice: random.Random) -> None:
        self.number = number
        self.worker = worker
        self.dice = dice

    def start(self, config: object) -> None:
        offset = self.context.offset_storage_reader().offset({"task": self.number})
        self.next = int(str(offset["next"])) if offset else 0

    def poll(self) -> Sequence[SourceRecord] | None:
        if self.next >= NUMBERS:
            self.worker().stop()
            return None
        count = min(self.dice.randint(1, 3), NUMBERS - self.next)
        batch = [self.record(n) for n in range(self.next, self.next + count)]
        self.next += count
        return batch

    def record(self, number: int) -> SourceRecord:
        return SourceRecord(
            {"task": self.number}, {"next": number + 1}, TOPIC.topic, b"%d:%d" % (self.number, number)
        )


class Cluster:
    """Tasks as processes, each begun again until it has counted to the end."""

    def __init__(self, seed: int, root: Path) -> None:
        self.world = World(seed)
        self.root = root
        self.finished: set[int] = set()
        self.begun = 0

    def run(self) -> None:
        self.world.chaos = Chaos.drawn(self.world.dice)
        for _ in range(40):
            if len(self.finished) == TASKS:
                break
            for task in set(range(TASKS)) - self.finished:
                # While an earlier process of the task may still run: it is fenced by this one.
                self.spawn(task)
            last = self.world.steps + self.world.dice.choice((40, 200, 1_000))
            while self.world.steps < last and self.world.processes:
                self.world.step()
                if self.world.steps % 60 == 0:
                    self.check()
        self.world.chaos = Chaos(switch=0.5)
        for task in set(range(TASKS)) - self.finished:
            self.spawn(task)
        self.world.run(lambda: not self.world.processes, at_most=100_000)
        self.world.end()

    def spawn(self, number: int) -> None:
        self.begun += 1
        name = TaskName("numbers", number)

        def process() -> None:
            task = Numbers(number, lambda: worker, self.world.dice)
            disk = SimulatedDisk(self.world)
            worker = WorkerSourceTask(
                task,
                name,
                None,
                writer=TopicDirectoryWriter(
                    self.root, transactional_id("g", name), name.connector, now=self.world.time, disk=disk
                ),
                offsets=TopicDirectoryOffsets(self.root, name.connector),
                clock=self.world,
                options=SourceOptions("poll"),
            )
            outcome = worker.run()
            exercised[f"tasks that ended {outcome.end}"] += 1
            if outcome.end is End.STOPPED:
                self.finished.add(number)

        self.world.spawn(f"task {number} ({self.begun})", process)

    def check(self) -> list[str]:
        """What any reader sees now: contiguous offsets, and of each task its first numbers, in order, once."""
        source = TopicDirectory(self.root)
        if not (self.root / f"topic={TOPIC.topic}").is_dir():
            return []
        source.partitions(Subscription(regex=".*"))
        offsets: list[int] = []
        values: list[str] = []
        for file in source._last_look.get(TOPIC, ()):
            table = pq.read_table(file.path, partitioning=None, columns=["offset", "value"])
            offsets += table.column("offset").to_pylist()
            values += [value.decode() for value in table.column("value").to_pylist()]
        assert offsets == list(range(len(offsets)))
        for task in range(TASKS):
            own = [value for value in values if value.startswith(f"{task}:")]
            assert own == [f"{task}:{n}" for n in range(len(own))]
        return values


@given(seed=st.integers(0, 2**48))
def test_each_number_is_in_the_topic_once_and_in_order(seed: int) -> None:
    """Whatever crashes where, whoever wakes up late: readers never see half a transaction, nor one twice."""
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(seed, Path(folder) / "topics")
        try:
            cluster.run()
            values = cluster.check()
        finally:
            cluster.world.end()
        assert len(values) == TASKS * NUMBERS
    exercised["schedules"] += 1
    for what, count in cluster.world.happened.items():
        exercised[what] += count
