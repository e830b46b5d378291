"""A frozen task that counts as dead changes nothing once its successors run."""

from __future__ import annotations

from pathlib import Path

import pytest

from sinksdk.engine.writer import Target
from sinksdk.model.outcome import End
from sinksdk.store.generations import Generations
from sinksdk.store.records import TaskPlan
from sinksdk.topics.directory.writer import TopicDirectoryTarget
from sinksdk.topics.memory import MemoryTopics
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from tests.helpers.memory_store import MemoryStore
from tests.helpers.memory_target import MemoryTarget
from tests.runtime.running_sources import Running, eventually
from tests.runtime.zombies import Zombies, committed

pytestmark = pytest.mark.usefixtures("at_once")


@pytest.fixture(params=["memory", "topic directory"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    return MemoryTarget(MemoryTopics()) if request.param == "memory" else TopicDirectoryTarget(str(tmp_path))


@pytest.mark.parametrize("tasks", [1, 2, 4])
def test_the_transaction_of_a_frozen_task_is_never_committed(target: Target, tasks: int) -> None:
    # Some of the three frozen tasks have no successor.
    store = MemoryStore()
    running = Running(store, target)
    running.connector.shares = [{"share": f"new-{task}"} for task in range(tasks)]
    with Zombies(store, target, 3) as zombies:
        assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]
        with running:
            eventually(lambda: all(committed(target, f"new-{task}") for task in range(tasks)))
            assert running.target.fenced == [0, 1, 2]
            zombies.thaw()

    assert [type(end).__name__ for end in zombies.ended] == ["FencedException"] * 3
    assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]
    assert running.error is None
    assert running.listener.ends == [[(task, End.STOPPED) for task in range(tasks)]]


def test_a_single_task_fences_its_predecessor_itself(target: Target) -> None:
    # With one task before and after (R = N = 1), there is no fencing round.
    store = MemoryStore()
    running = Running(store, target)
    running.connector.shares = [{"share": "new"}]
    with Zombies(store, target, 1) as zombies, running:
        eventually(lambda: committed(target, "new"))
        assert running.target.fenced == []
        zombies.thaw()

    assert committed(target, "old-0") == 2


def test_tasks_of_a_deleted_connector_are_fenced_when_it_is_created_again(target: Target) -> None:
    # The task count record is kept when the connector is deleted.
    store = MemoryStore()
    running = Running(store, target)
    running.connector.shares = [{"share": "new"}]
    with Zombies(store, target, 3) as zombies:
        Generations(store, "c").forget()
        with running:
            eventually(lambda: committed(target, "new"))
            assert running.target.fenced == [0, 1, 2]
            zombies.thaw()

    assert [committed(target, f"old-{task}") for task in range(3)] == [2, 2, 2]


def test_an_old_task_that_starts_late_writes_nothing(target: Target) -> None:
    # The task of a finished generation ends before it creates a writer, and fences no other task.
    store = MemoryStore()
    generations = Generations(store, "c")
    raw = {"name": "c", "connector.class": "tests.runtime.running_sources:Counting"}
    late = generations.plan(generations.claim(), [TaskPlan(ranges=())], 1, raw, transactional_tasks=1)
    running = Running(store, target)
    running.connector.shares = [{"share": "new"}]
    with running:
        eventually(lambda: committed(target, "new"))
        spec = GenerationSpec("memory:", "id", "c", late.generation, target=target)
        with pytest.raises(Exception, match="was replaced by a newer one"):
            run_source_attempt(spec, store, 0)
        before = committed(target, "new") or 0
        eventually(lambda: (committed(target, "new") or 0) > before)

    assert running.listener.ends == [[(0, End.STOPPED)]]
