"""Source tasks with crashes, zombies and lost responses at each operation outside of the process."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from property_tests.simulation.places import Directory, Memory, Place
from property_tests.simulation.world import Chaos, World
from sinksdk.engine.options import SourceOptions, TaskName
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.engine.writer import transactional_id
from sinksdk.model.outcome import End
from sinksdk.source import SourceRecord, SourceTask

exercised = EXERCISED["source tasks"]
TASKS: Final = 2
NUMBERS: Final = 9
UNANSWERED: Final = r"failed \d+ times, the last time with|start raised RetriableException"
TOPIC: Final = "numbers"


class Numbers(SourceTask):
    """Counts in its own source partition; if the task defines transactions, it aborts each fifth number."""

    def __init__(self, number: int, worker: Callable[[], WorkerSourceTask], world: World) -> None:
        self.number = number
        self.worker = worker
        self.world = world
        self.calls: list[str] = []

    def start(self, config: object) -> None:
        offset = self.context.offset_storage_reader().offset({"task": self.number})
        self.next = int(str(offset["next"])) if offset else 0

    def poll(self) -> Sequence[SourceRecord] | None:
        assert "stopped" not in self.calls
        self.world.sleep(self.world.dice.choice((0.0, 0.5, 3.0)))
        self.worker().tick()  # the engine calls stop from its other thread, while poll waits
        if self.next >= NUMBERS:
            self.worker().stop()
            return None
        asks = self.context.transaction_context()
        most = 3 if asks is None else 1
        count = min(self.world.dice.randint(1, most), NUMBERS - self.next)
        batch = [self.record(n) for n in range(self.next, self.next + count)]
        if asks is not None and is_taken_back(self.next):
            asks.abort_transaction(batch[0])
        elif asks is not None:
            asks.commit_transaction()
        self.next += count
        return batch

    def record(self, number: int) -> SourceRecord:
        value = b"%d:%d" % (self.number, number)
        return SourceRecord({"task": self.number}, {"next": number + 1}, TOPIC, value)

    def stop(self) -> None:
        self.calls.append("stop")

    def stopped(self) -> None:
        assert self.calls == ["stop"]
        self.calls.append("stopped")


def is_taken_back(number: int) -> bool:
    return number % 5 == 4


class Cluster:
    def __init__(self, world: World, place: Place, options: SourceOptions) -> None:
        self.world = world
        self.place = place
        self.options = options
        self.finished: set[int] = set()
        self.begun = 0

    def run(self) -> None:
        self.world.chaos = Chaos.drawn(self.world.dice)
        for _ in range(40):
            if len(self.finished) == TASKS:
                break
            # An earlier process of the task may still run; the new one must fence it.
            self.spawn_missing()
            last = self.world.steps + self.world.dice.choice((40, 200, 1_000))
            while self.world.steps < last and self.world.processes:
                self.world.step()
                if self.world.steps % 60 == 0:
                    self.check()
        self.world.chaos = Chaos(switch=0.5)
        self.spawn_missing()
        self.world.run(lambda: not self.world.processes, at_most=100_000)

    def spawn_missing(self) -> None:
        for task in set(range(TASKS)) - self.finished:
            self.spawn(task)

    def spawn(self, number: int) -> None:
        self.begun += 1
        name = TaskName("numbers", number)

        def process() -> None:
            task = Numbers(number, lambda: worker, self.world)
            worker = WorkerSourceTask(
                task,
                name,
                None,
                writer=self.place.writer(transactional_id("g", name), name.connector),
                offsets=self.place.offsets(name.connector),
                clock=self.world,
                options=self.options,
            )
            outcome = worker.run()
            exercised[f"tasks that ended {outcome.end}"] += 1
            # A task may fail only after requests got no response for longer than it may wait.
            if outcome.end is End.FAILED:
                assert outcome.failure is not None
                assert re.search(UNANSWERED, outcome.failure.message), outcome.failure.trace
            if outcome.end is End.STOPPED:
                self.finished.add(number)

        self.world.spawn(f"task {number} ({self.begun})", process)

    def expected(self) -> list[int]:
        takes_back = self.options.boundary == "connector"
        return [n for n in range(NUMBERS) if not (takes_back and is_taken_back(n))]

    def check(self) -> list[str]:
        values = [row.value for row in self.place.rows(TOPIC)]
        for task in range(TASKS):
            own = [value for value in values if value.startswith(f"{task}:")]
            assert own == [f"{task}:{n}" for n in self.expected()[: len(own)]]
        return values


boundaries = st.sampled_from(
    [SourceOptions("poll"), SourceOptions("interval", 2.0), SourceOptions("connector")]
)


def survive(world: World, place: Place, options: SourceOptions) -> None:
    cluster = Cluster(world, place, options)
    try:
        cluster.run()
        values = cluster.check()
        world.raise_violation()
    finally:
        world.end()
    assert len(values) == TASKS * len(cluster.expected())
    exercised[f"schedules with boundary {options.boundary}"] += 1
    for what, count in world.happened.items():
        exercised[what] += count


@given(seed=st.integers(0, 2**48), options=boundaries)
def test_source_task_is_exactly_once_in_memory(seed: int, options: SourceOptions) -> None:
    world = World(seed)
    survive(world, Memory(world), options)


@pytest.mark.extended
@given(seed=st.integers(0, 2**48), options=boundaries)
def test_source_task_is_exactly_once_in_a_topic_directory(seed: int, options: SourceOptions) -> None:
    world = World(seed)
    with tempfile.TemporaryDirectory() as folder:
        survive(world, Directory(world, Path(folder) / "topics"), options)
