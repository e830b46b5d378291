"""The information about a connector's tasks."""

from __future__ import annotations

import pytest

from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.info import connector_info
from sinksdk.control.liveness import deregister, register
from sinksdk.control.shown import TaskInfo
from sinksdk.control.status import StatusKeeper
from sinksdk.model.outcome import PartitionOutcome, Retry
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.model.status import PartitionStatus, Waiting
from sinksdk.store import table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import progress_key, status_key
from sinksdk.store.records import TaskPlan
from sinksdk.store.reports import ConnectorStatus, TaskProgress
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore

NOW = 1_800_000_000.0


def task_infos(
    *shares: tuple[int, ...], failing: tuple[int, ...], missing: tuple[str, ...] = ()
) -> list[TaskInfo]:
    store = MemoryStore()
    Herder(store).create("archive", {"name": "archive", "connector.class": "s3-archiver"})
    generations = Generations(store, "archive")
    tasks = [
        TaskPlan(ranges=tuple(RangePlan(topic="orders", partition=n, start=0, end=9) for n in share))
        for share in shares
    ]
    generations.plan(generations.claim(), tasks, 1)
    partitions = tuple(
        PlannerState(topic="orders", partition=n, failures=1, error=f"S3 refuses orders-{n}") for n in failing
    )
    status = ConnectorStatus(
        state="RUNNING", driver="d", heartbeat=NOW, partitions=partitions, missing_topics=missing
    )
    table.write(store, status_key("archive"), status, None)
    return list(connector_info(store, "archive", NOW).tasks)


@pytest.mark.parametrize(
    ("failing", "states"),
    [
        ((), ["RUNNING", "RUNNING"]),
        ((0,), ["RESTARTING", "RUNNING"]),
        ((1,), ["RUNNING", "RESTARTING"]),
        ((2,), ["RESTARTING", "RUNNING"]),
    ],
    ids=str,
)
def test_the_task_of_a_failing_partition_is_restarting(failing: tuple[int, ...], states: list[str]) -> None:
    # A task is RESTARTING while one of its partitions waits to be opened again.
    assert [task.state for task in task_infos((0, 2), (1,), failing=failing)] == states


def test_a_waiting_partition_is_shown_while_others_are_read() -> None:
    # Regression: a generation that read only the other partitions hid the one that waits for a retry. That
    # partition counts as one of the last task, which is RESTARTING with the error.
    first, last = task_infos((1,), (2,), failing=(0,))

    assert (first.state, first.partitions) == ("RUNNING", (TopicPartition("orders", 1),))
    assert (last.state, last.trace) == ("RESTARTING", "S3 refuses orders-0")
    assert last.partitions == (TopicPartition("orders", 2), TopicPartition("orders", 0))


def test_a_failed_partition_of_a_missing_topic_is_not_shown_as_waiting() -> None:
    # A partition that failed before its topic vanished is not opened again.
    (task,) = task_infos((1,), failing=(0,), missing=("orders",))

    assert (task.state, task.partitions) == ("RUNNING", (TopicPartition("orders", 1),))


def test_a_connector_whose_drivers_process_is_dead_has_no_driver(clock: ManualClock) -> None:
    # The connector must not stay RUNNING for half a minute after kill -9 of the server.
    store, ours = MemoryStore(), register()
    Herder(store).create("c", {})
    status = StatusKeeper(store, "c", ours, clock)
    status.become("RUNNING")

    running = connector_info(store, "c", clock.time())
    assert (running.state, running.driver) == ("RUNNING", ours)
    deregister(ours)
    ended = connector_info(store, "c", clock.time())
    assert (ended.state, ended.driver) == ("UNASSIGNED", "")


WAIT = Retry(since=NOW - 40, attempts=7, next_attempt=NOW + 20, refused=5)


def waiting(running: PartitionOutcome | None = None) -> tuple[Waiting | None, PartitionStatus, TaskInfo]:
    store = MemoryStore()
    Herder(store).create("archive", {"name": "archive", "connector.class": "s3-archiver"})
    generations = Generations(store, "archive")
    range_ = RangePlan(topic="orders", partition=0, start=0, end=9, retry=WAIT)
    plan = generations.plan(generations.claim(), [TaskPlan(ranges=(range_,))], 1)
    known = PlannerState(topic="orders", partition=0, error="S3 asks for patience", retry=WAIT)
    status = ConnectorStatus(state="RUNNING", driver="d", heartbeat=NOW, partitions=(known,))
    table.write(store, status_key("archive"), status, None)
    if running is not None:
        progress = TaskProgress(generation=plan.generation, attempt=1, partitions=(running,))
        table.write(store, progress_key("archive", 0), progress, None)
    info = connector_info(store, "archive", NOW)
    return info.waiting, info.partitions[0], info.tasks[0]


def at(position: int, *, tail: int | None = None) -> PartitionOutcome:
    tail = position if tail is None else tail
    return PartitionOutcome(TopicPartition("orders", 0), None, position, position, tail, position)


@pytest.mark.parametrize(
    "running", [None, at(0), at(5)], ids=["between generations", "started", "read again"]
)
def test_a_partition_that_waits_for_a_retry_has_not_failed(running: PartitionOutcome | None) -> None:
    # The task is RUNNING, as Connect's would be.
    expected = Waiting(reason="S3 asks for patience", since=NOW - 40, next_attempt=NOW + 20, attempts=7)
    connector, partition, task = waiting(running)
    assert (connector, partition.waiting, partition.error, partition.failures) == (
        expected,
        expected,
        None,
        0,
    )
    assert (task.state, task.trace) == ("RUNNING", None)


@pytest.mark.parametrize("running", [at(6), at(5, tail=0)], ids=["accepted", "committed"])
def test_a_partition_whose_retry_succeeded_is_not_shown_as_waiting(running: PartitionOutcome) -> None:
    connector, partition, _ = waiting(running)
    assert (connector, partition.waiting) == (None, None)
