"""A source's driver, with tasks in threads that really take over and run the real engine."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sinksdk import ClosingReason, ConfigException, ConnectException, RetriableException
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal, ConnectorRequests
from sinksdk.control.status import read_status
from sinksdk.engine.options import TaskName
from sinksdk.engine.writer import TransactionalWriter
from sinksdk.model.outcome import End
from sinksdk.model.status import Waiting
from sinksdk.source import SourceConnectorConfig
from sinksdk.store import table
from sinksdk.store.keys import task_count_key
from sinksdk.store.records import GenerationPlan, TaskCountRecord
from sinksdk.store.reports import ConnectorStatus
from sinksdk.topics.memory import MemoryTopics
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import SourceTaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sources import (
    Counting,
    CountingTask,
    InThreads,
    Running,
    ThreadsOfTasks,
    counted,
    eventually,
)

pytestmark = pytest.mark.usefixtures("at_once")


def status(store: MemoryStore) -> ConnectorStatus:
    return read_status(store, "c")


def recorded(store: MemoryStore) -> int | None:
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    assert row is not None
    return row.value.transactional_tasks


def test_tasks_run_until_the_driver_is_closed() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(topics.records("numbers")) > 20)

    assert running.error is None
    assert len(running.launcher.plans) == 1
    assert running.listener.ends == [[(0, End.STOPPED), (1, End.STOPPED)]]
    assert sorted(CountingTask.stops) == ["a", "b"]
    assert running.connector.life == ["start", "stop(False)"]
    for share in "ab":
        assert (found := counted(running.values(), share)) == list(range(len(found)))
    assert status(store).state == "UNASSIGNED"
    assert recorded(store) == 2


def test_the_next_start_resumes_at_the_committed_source_offsets() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    for _ in range(3):
        before = len(topics.records("numbers"))
        with Running(store, topics) as running:
            eventually(lambda before=before: len(topics.records("numbers")) > before + 10)  # type: ignore[misc]  # of this round

    for share in "ab":
        assert (found := counted(running.values(), share)) == list(range(len(found)))


def test_a_changed_configuration_starts_other_tasks() -> None:
    # The old tasks close with a commit and are fenced before the new ones start.
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: running.launcher.plans and len(CountingTask.started) == 2)
        running.connector.shares = [{"share": "a"}, {"share": "b"}, {"share": "c"}]
        running.driver.rebalance()
        eventually(lambda: "c" in CountingTask.started)

    assert [len(plan.tasks) for plan in running.launcher.plans] == [2, 3]
    assert running.listener.reasons[0] is ClosingReason.REBALANCE
    assert running.target.fenced == [0, 1]
    assert recorded(store) == 3


@pytest.mark.parametrize(
    ("before", "after", "fenced"),
    [
        pytest.param(None, 1, [], id="no record: no transactional producer can exist"),
        pytest.param(None, 3, [], id="no record, several tasks"),
        pytest.param(1, 1, [], id="R = N = 1: the same id fences itself"),
        pytest.param(1, 3, [0], id="from one to more: id 0"),
        pytest.param(3, 1, [0, 1, 2], id="as many as were recorded, not as will run: fewer"),
        pytest.param(2, 4, [0, 1], id="as many as were recorded, not as will run: more"),
        pytest.param(3, 3, [0, 1, 2], id="other configurations of as many tasks"),
    ],
)
def test_earlier_tasks_are_fenced_before_new_ones_start(
    before: int | None, after: int, fenced: list[int]
) -> None:
    # KIP-618's table, P = yes: the driver fences the tasks of the last record before the new ones.
    store, topics = MemoryStore(), MemoryTopics()
    if before is not None:
        first = Running(store, topics)
        first.connector.shares = [{"share": f"old-{n}"} for n in range(before)]
        with first:
            eventually(lambda: len(CountingTask.started) == before)
        assert recorded(store) == before
    running = Running(store, topics)
    running.connector.shares = [{"share": f"new-{n}"} for n in range(after)]
    with running:
        eventually(lambda: len([s for s in CountingTask.started if s.startswith("new")]) == after)

    assert running.target.fenced == fenced
    assert recorded(store) == after


def test_tasks_with_the_same_configurations_fence_themselves() -> None:
    # KIP-618's table, P = no: each task has the transactional id of its predecessor, so no fencing round is
    # needed.
    store, topics = MemoryStore(), MemoryTopics()
    for _ in range(2):
        with Running(store, topics) as running:
            eventually(lambda: len(CountingTask.started) == 2)

    assert running.target.fenced == []
    assert topics.epochs == {"sinksdk-c-0": 2, "sinksdk-c-1": 2}


def test_a_failed_fencing_writes_nothing_and_is_retried() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics):
        eventually(lambda: len(CountingTask.started) == 2)
    running = Running(store, topics)
    running.connector.shares = [{"share": "c"}]
    running.target.refusals = [RetriableException("no coordinator"), ConnectException("not authorized")]
    writer, before = running.target.writer, list[tuple[int | None, int]]()

    def watched(config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        before.append((recorded(store), len(running.launcher.plans)))
        return writer(config, name)

    running.target.writer = watched  # type: ignore[method-assign]  # checks before each attempt
    with running:
        eventually(lambda: CountingTask.started == ["c"])

    assert before[:4] == [(2, 0)] * 4, "two refusals, two fencings"
    assert running.target.fenced == [0, 1]
    assert recorded(store) == 1


def test_a_fencing_that_always_fails_fails_the_connector() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics):
        eventually(lambda: len(CountingTask.started) == 2)
    running = Running(store, topics, **{"restart.max.attempts": 2})
    running.connector.shares = [{"share": "c"}]
    running.target.refusals = [ConnectException("not authorized") for _ in range(9)]
    with running:
        running.join()

    assert "not authorized" in str(running.error)
    assert (len(running.target.refusals), running.launcher.plans) == (6, [])
    assert status(store).state == "FAILED"


def test_other_tasks_continue_until_the_restart_after_a_failed_task() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    running = Running(store, topics, **{"restart.max.attempts": 100})
    running.connector.shares = [{"share": "a"}, {"share": "b", "fails": "true"}]
    with running:
        eventually(lambda: len(running.launcher.plans) > 1)
        running.connector.shares = [{"share": "a"}, {"share": "b"}]
        eventually(lambda: counted(running.values(), "b"))

    assert running.listener.reasons[0] is ClosingReason.FAILURE
    assert running.listener.ends[0] == [(0, End.STOPPED), (1, End.FAILED)]
    for share in "ab":
        assert (found := counted(running.values(), share)) == list(range(len(found)))


class Unreachable(InThreads):
    is_away = True

    def launch(self, plan: GenerationPlan) -> ThreadsOfTasks:
        if not self.is_away:
            return super().launch(plan)
        self.plans.append(plan)
        return Lost(GenerationSpec("memory:", "id", "c", plan.generation), self.store, 0)


class Lost(ThreadsOfTasks):
    def results(self) -> Sequence[SourceTaskResult]:
        message = "its tasks cannot work: store s: no answer for 30 s"
        raise RetriableException(message)


def test_an_outage_of_the_store_for_tasks_uses_up_no_restart_attempt() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    running = Running(store, topics, **{"restart.max.attempts": 0, "restart.backoff.ms": 100})
    launcher = Unreachable(store, running.target)
    running.driver.launcher = launcher
    seen: list[Waiting] = []

    def is_shown() -> bool:
        seen.extend(filter(None, [status(store).waiting]))
        return bool(seen)

    with running:
        eventually(is_shown)
        launcher.is_away = False
        eventually(lambda: bool(running.values()))
        eventually(lambda: status(store).waiting is None)
        assert status(store).state == "RUNNING"

    assert running.error is None
    assert seen[0].reason == "its tasks cannot work: store s: no answer for 30 s"


def test_a_task_that_fails_too_often_fails_the_connector() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    running = Running(store, topics, **{"restart.max.attempts": 1})
    running.connector.shares = [{"share": "a"}, {"share": "b", "fails": "true"}]
    with running:
        running.join()

    assert "task 1 failed 2 times" in str(running.error)
    assert "the source is gone" in str(running.error)
    assert len(running.launcher.plans) == 2
    assert running.listener.ends[1][0] == (0, End.STOPPED)
    assert status(store).state == "FAILED"
    assert [(row.task, row.failures) for row in status(store).tasks] == [(1, 2)]


@pytest.mark.parametrize(
    ("wish", "reason"), [("PAUSED", ClosingReason.PAUSE), ("STOPPED", ClosingReason.STOP)]
)
def test_an_operator_can_stop_a_source(wish: registry.TargetState, reason: ClosingReason) -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        Herder(store).aim("c", wish)
        running.join()

    assert running.reason is reason
    assert running.listener.reasons == [reason]


class LookedAtSeldom(MemoryStore):
    # Requests to this store cost money, so the driver polls only every 20 s.
    closing_poll = 40.0


def test_a_connector_requests_a_task_reconfiguration() -> None:
    store, topics = LookedAtSeldom(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        running.connector.shares = [{"share": "a"}, {"share": "b"}, {"share": "c"}]
        running.connector.context.request_task_reconfiguration()
        eventually(lambda: "c" in CountingTask.started, seconds=10)

    assert running.listener.reasons == [ClosingReason.REBALANCE, ClosingReason.SHUTDOWN]
    assert [len(plan.tasks) for plan in running.launcher.plans] == [2, 3]
    assert running.connector.life == ["start", "stop(False)"]
    for share in "ab":
        assert (found := counted(running.values(), share)) == list(range(len(found)))


def test_requests_before_the_next_call_of_task_configs_are_one() -> None:
    requests = ConnectorRequests("counting", ClosingSignal())
    threads = [threading.Thread(target=requests.request_task_reconfiguration) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert requests.closing() is ClosingReason.REBALANCE

    requests.clear()
    assert requests.closing() is None


def test_simultaneous_reconfiguration_requests_cause_one_generation() -> None:
    # All requests come before the next call of task_configs.
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        with store._lock:  # meanwhile the driver closes nothing
            for _ in range(20):
                running.connector.context.request_task_reconfiguration()
        eventually(lambda: len(CountingTask.started) == 4)
        time.sleep(1.5)  # longer than the driver's poll interval

    assert len(running.launcher.plans) == 2


class AsksWhileItIsAsked(Counting):
    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        shares = super().task_configs(max_tasks)
        if len(shares) == 2:
            self.context.request_task_reconfiguration()
            self.shares = [*shares, {"share": "c"}]
        return shares


def test_a_request_during_task_configs_counts() -> None:
    running = Running(MemoryStore(), MemoryTopics(), connector=AsksWhileItIsAsked())
    with running:
        eventually(lambda: "c" in CountingTask.started)

    assert [len(plan.tasks) for plan in running.launcher.plans] == [2, 3]


def test_a_request_without_running_tasks_is_not_lost() -> None:
    # The request comes after task_configs, while fencing is retried.
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics):
        eventually(lambda: len(CountingTask.started) == 2)
    running = Running(store, topics, **{"restart.backoff.ms": 300})
    running.connector.shares = [{"share": "c"}]
    running.target.refusals = [RetriableException("no coordinator")]
    with running:
        eventually(lambda: not running.target.refusals)
        running.connector.shares = [{"share": "d"}]
        running.connector.context.request_task_reconfiguration()
        eventually(lambda: "d" in CountingTask.started)

    assert running.error is None


class AsksTooEarlyAndTooLate(Counting):
    def start(self, config: Any) -> None:
        super().start(config)
        self.context.request_task_reconfiguration()

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        super().stop(is_deleted)
        self.context.request_task_reconfiguration()
        self.context.raise_error(OSError("too late"))


def test_requests_before_the_start_and_after_the_end_have_no_effect() -> None:
    # The first configurations come after start(), and none come after stop().
    running = Running(MemoryStore(), MemoryTopics(), connector=AsksTooEarlyAndTooLate())
    with running:
        eventually(lambda: len(CountingTask.started) == 2)
        time.sleep(1.2)
    running.connector.context.request_task_reconfiguration()

    assert (running.error, len(running.launcher.plans)) == (None, 1)


def test_raise_error_fails_the_connector() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(topics.records("numbers")) > 5)
        running.connector.context.raise_error(OSError("the replication slot is gone"))
        running.connector.context.raise_error(OSError("and another thing"))
        running.join()

    assert isinstance(running.error, ConnectException)
    assert "connector c has raised an error: OSError: the replication slot is gone" in str(running.error)
    assert running.listener.ends == [[(0, End.STOPPED), (1, End.STOPPED)]]
    assert running.listener.reasons == [ClosingReason.FAILURE]
    assert running.connector.life == ["start", "stop(False)"]
    shown = status(store)
    assert (shown.state, "the replication slot is gone" in (shown.trace or "")) == ("FAILED", True)


class RaisesInStart(Counting):
    def start(self, config: Any) -> None:
        super().start(config)
        self.context.raise_error(ConfigException("'table' cannot be watched: make it readable"))


def test_raise_error_in_start_prevents_tasks() -> None:
    running = Running(MemoryStore(), MemoryTopics(), connector=RaisesInStart())
    with running:
        running.join()

    assert isinstance(running.error, ConfigException)
    assert running.launcher.plans == []


def test_raise_error_requires_an_exception() -> None:
    with Running(MemoryStore(), MemoryTopics()) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        with pytest.raises(TypeError, match="raise_error requires an exception, got 'broken'"):
            running.connector.context.raise_error("broken")  # type: ignore[arg-type]  # that is the mistake

    assert running.error is None


def test_a_source_without_tasks_waits_for_a_reconfiguration() -> None:
    # As in Connect, an empty list starts no job until the connector or an operator requests one.
    store, topics = MemoryStore(), MemoryTopics()
    running = Running(store, topics)
    running.connector.shares = []
    with running:
        eventually(lambda: status(store).state == "RUNNING" and recorded(store) == 0)
        assert running.launcher.plans == []
        Herder(store).rebalance("c")
        eventually(lambda: running.listener.reasons == [ClosingReason.REBALANCE])
        running.connector.shares = [{"share": "a"}]
        running.connector.context.request_task_reconfiguration()
        eventually(lambda: counted(running.values(), "a"))
        running.connector.shares = []
        running.connector.context.request_task_reconfiguration()
        eventually(lambda: recorded(store) == 0)
        Herder(store).aim("c", "PAUSED")
        running.join()

    assert (running.error, running.reason) == (None, ClosingReason.PAUSE)
    assert running.target.fenced == [0], "the task that ran before"


def test_a_source_without_tasks_gives_way_to_a_newer_driver() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    older = Running(store, topics)
    older.connector.shares = []
    with older:
        eventually(lambda: status(store).state == "RUNNING" and recorded(store) == 0)
        with Running(store, topics):
            eventually(lambda: len(CountingTask.started) == 2)
            older.join()

    assert "has taken over" in str(older.error)


def test_orders_are_applied_while_tasks_run() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        Herder(store).restart("c", only_failed=True)
        Herder(store).rebalance("c")
        eventually(lambda: len(CountingTask.started) == 4)
        Herder(store).flush("c")
        eventually(lambda: len(CountingTask.started) == 6)

    assert running.listener.reasons == [ClosingReason.REBALANCE, ClosingReason.DUE, ClosingReason.SHUTDOWN]


def test_a_newer_driver_takes_over() -> None:
    # The older driver's tasks close with a commit: no number is lost or repeated.
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics) as older:
        eventually(lambda: len(CountingTask.started) == 2)
        with Running(store, topics) as newer:
            eventually(lambda: len(CountingTask.started) == 2)
            older.join()

    assert "has taken over" in str(older.error)
    assert older.listener.ends == [[(0, End.STOPPED), (1, End.STOPPED)]]
    for share in "ab":
        assert (found := counted(newer.values(), share)) == list(range(len(found)))


def test_until_caught_up_is_refused_for_sources() -> None:
    running = Running(MemoryStore(), MemoryTopics())
    with pytest.raises(ConfigException, match="is a source, which never catches up"):
        running.driver.run(until_caught_up=True)


def test_too_many_configurations_are_refused() -> None:
    running = Running(MemoryStore(), MemoryTopics(), **{"tasks.max": 1})
    with running:
        running.join()

    assert "task_configs(1) returned too many configurations" in str(running.error)
