"""A task that was taken for dead, and is not: what it does once its successors run never counts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from sinksdk.engine import TaskName
from sinksdk.engine.source_outcome import End
from sinksdk.engine.writer import CommittedOffsets, Target, TransactionalWriter
from sinksdk.runtime.generation import Generations
from sinksdk.source import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.source_executor import run_source_attempt
from sinksdk.spark.task_result import SourceTaskResult
from sinksdk.store import MemoryStore
from sinksdk.store.records import TaskPlan
from sinksdk.writers.memory import MemoryTarget, MemoryTopics
from sinksdk.writers.topic_directory import TopicDirectoryTarget
from tests.runtime.running_sources import CountingConfig, Running, eventually


class Freezing:
    """A writer whose third transaction is frozen between its records and its commit, until it is thawed."""

    def __init__(self, writer: TransactionalWriter, frozen: threading.Event, thaw: threading.Event) -> None:
        self._writer = writer
        self._frozen, self._thaw = frozen, thaw
        self._commits = 0
        self.init, self.begin, self.send = writer.init, writer.begin, writer.send
        self.abort, self.close = writer.abort, writer.close

    def commit(self, positions: Sequence[SourcePosition]) -> Sequence[RecordMetadata]:
        self._commits += 1
        if self._commits == 3:
            self._frozen.set()
            assert self._thaw.wait(20)
        return self._writer.commit(positions)


class FreezingTarget:
    """Freezes the writers of the tasks it is told to; all others are as they are."""

    def __init__(self, target: Target, tasks: int) -> None:
        self._target = target
        self._tasks = tasks
        self.frozen = [threading.Event() for _ in range(tasks)]
        self.thaw = threading.Event()

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        writer = self._target.writer(config, name)
        return Freezing(writer, self.frozen[name.task], self.thaw)  # type: ignore[return-value]

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        return self._target.offsets(config)


@pytest.fixture(params=["memory", "topic directory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Where records go."""
    return MemoryTarget(MemoryTopics()) if request.param == "memory" else TopicDirectoryTarget(str(tmp_path))


@pytest.fixture
def zombies(target: Target) -> Iterator[Callable[[MemoryStore, int], Any]]:
    """Starts a generation of tasks that freeze in the middle of a transaction, without a driver."""
    threads: list[threading.Thread] = []
    freezing: list[FreezingTarget] = []

    def start(store: MemoryStore, tasks: int) -> tuple[FreezingTarget, list[SourceTaskResult | Exception]]:
        frozen, ended = FreezingTarget(target, tasks), list[SourceTaskResult | Exception]()
        freezing.append(frozen)
        raw = {
            "name": "c",
            "connector.class": "tests.runtime.running_sources:Counting",
            "closing.poll.ms": "100000",  # what is frozen does not look
        }
        generations = Generations(store, "c")
        plan = generations.plan(
            generations.claim(),
            [TaskPlan(ranges=(), config={"share": f"old-{task}"}) for task in range(tasks)],
            1,
            raw,
            transactional_tasks=tasks,
        )
        spec = GenerationSpec("memory:", "id", "c", plan.generation, target=frozen)

        def run(task: int) -> None:
            try:
                ended.append(run_source_attempt(spec, store, task))
            except Exception as error:  # noqa: BLE001 - it is looked at
                ended.append(error)

        for task in range(tasks):
            threads.append(threading.Thread(target=run, args=(task,), daemon=True))
            threads[-1].start()
        for event in frozen.frozen:
            assert event.wait(20)
        return frozen, ended

    yield start
    for frozen in freezing:
        frozen.thaw.set()
    for thread in threads:
        thread.join(20)


def committed(target: Target, share: str) -> int | None:
    """Up to which number a share is committed."""
    offsets = target.offsets(CountingConfig.parse({"name": "c"}))
    found = offsets.offset({"share": share})
    return int(found["next"]) if found else None  # type: ignore[arg-type]


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_a_frozen_transaction_never_counts(
    target: Target, zombies: Callable[[MemoryStore, int], Any], tasks: int
) -> None:
    """From three tasks to fewer or more: the frozen ones are fenced, whether or not they have successors."""
    store = MemoryStore()
    frozen, ended = zombies(store, 3)
    assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]

    running = Running(store, target)
    running.connector.shares = [{"share": f"new-{task}"} for task in range(tasks)]
    with running:
        eventually(lambda: all(committed(target, f"new-{task}") for task in range(tasks)))
        assert running.target.fenced == [0, 1, 2]
        frozen.thaw.set()
        eventually(lambda: len(ended) == 3)

    assert [type(end).__name__ for end in ended] == ["FencedException"] * 3
    assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]
    assert running.error is None
    assert running.listener.ends == [[(task, End.STOPPED) for task in range(tasks)]]


def test_a_single_task_fences_its_predecessor_by_itself(
    target: Target, zombies: Callable[[MemoryStore, int], Any]
) -> None:
    """R = N = 1: no round, and the frozen transaction does not count all the same."""
    store = MemoryStore()
    frozen, ended = zombies(store, 1)
    running = Running(store, target)
    running.connector.shares = [{"share": "new"}]
    with running:
        eventually(lambda: committed(target, "new"))
        assert running.target.fenced == []
        frozen.thaw.set()
        eventually(lambda: len(ended) == 1)

    assert committed(target, "old-0") == 2


def test_a_connector_that_is_created_again_is_fenced_against_its_former_self(
    target: Target, zombies: Callable[[MemoryStore, int], Any]
) -> None:
    """The task count record outlives the deletion (F5): what was frozen before it is fenced after it."""
    store = MemoryStore()
    frozen, ended = zombies(store, 3)
    Generations(store, "c").forget()
    running = Running(store, target)
    running.connector.shares = [{"share": "new"}]
    with running:
        eventually(lambda: committed(target, "new"))
        assert running.target.fenced == [0, 1, 2]
        frozen.thaw.set()
        eventually(lambda: len(ended) == 3)

    assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]


def test_an_old_task_that_starts_late_touches_nothing(target: Target) -> None:
    """A generation that is over: its task abandons before it has a writer, and fences nobody."""
    store = MemoryStore()
    generations = Generations(store, "c")
    raw = {"name": "c", "connector.class": "tests.runtime.running_sources:Counting"}
    late = generations.plan(generations.claim(), [TaskPlan(ranges=())], 1, raw, transactional_tasks=1)
    with Running(store, target) as running:
        running.connector.shares = [{"share": "new"}]
        eventually(lambda: committed(target, "new"))
        spec = GenerationSpec("memory:", "id", "c", late.generation, target=target)
        with pytest.raises(Exception, match="is over; a newer one has taken over"):
            run_source_attempt(spec, store, 0)
        before = committed(target, "new") or 0
        eventually(lambda: (committed(target, "new") or 0) > before)

    assert running.listener.ends == [[(0, End.STOPPED)]]
