"""What others are told of a connector's tasks."""

from __future__ import annotations

import pytest

from sinksdk import TopicPartition
from sinksdk.runtime.generation import Generations
from sinksdk.runtime.info import TaskInfo, connector_info
from sinksdk.runtime.registry import create
from sinksdk.store import MemoryStore, table
from sinksdk.store.keys import status_key
from sinksdk.store.records import PlannedRange, TaskPlan
from sinksdk.store.reports import ConnectorStatus, PartitionStatus

NOW = 1_800_000_000.0


def told(*shares: tuple[int, ...], failing: tuple[int, ...], missing: tuple[str, ...] = ()) -> list[TaskInfo]:
    """Of a connector whose newest generation reads these partitions, while those have failed."""
    store = MemoryStore()
    create(store, "archive", {"name": "archive", "connector.class": "s3-archiver"})
    generations = Generations(store, "archive")
    tasks = [
        TaskPlan(ranges=tuple(PlannedRange(topic="orders", partition=n, start=0, end=9) for n in share))
        for share in shares
    ]
    generations.plan(generations.claim(), tasks, 1)
    partitions = tuple(
        PartitionStatus(topic="orders", partition=n, failures=1, error=f"S3 refuses orders-{n}")
        for n in failing
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
    """RESTARTING while something of it waits to be opened again; the other tasks are not concerned."""
    assert [task.state for task in told((0, 2), (1,), failing=failing)] == states


def test_a_partition_that_waits_while_others_are_read_is_seen() -> None:
    """It counts as the last task's, which is RESTARTING with its error.

    A generation that reads only the other partitions used to show RUNNING tasks, and nothing that waits.
    """
    first, last = told((1,), (2,), failing=(0,))

    assert (first.state, first.partitions) == ("RUNNING", (TopicPartition("orders", 1),))
    assert (last.state, last.trace) == ("RESTARTING", "S3 refuses orders-0")
    assert last.partitions == (TopicPartition("orders", 2), TopicPartition("orders", 0))


def test_a_missing_topic_waits_for_nothing() -> None:
    """A partition that failed before its topic vanished is not opened again: no task is RESTARTING for it."""
    (task,) = told((1,), failing=(0,), missing=("orders",))

    assert (task.state, task.partitions) == ("RUNNING", (TopicPartition("orders", 1),))
