from __future__ import annotations

from sinksdk import TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.runtime.planner import assign


def planned(partition: int, size: int) -> RangePlan:
    return RangePlan(topic="t", partition=partition, start=0, end=size)


def partitions(tasks: list[tuple[RangePlan, ...]]) -> list[list[int]]:
    return [[share.partition for share in shares] for shares in tasks]


def test_tasks_never_outnumber_ranges() -> None:
    assert partitions(assign([planned(0, 5), planned(1, 5)], 10)) == [[0], [1]]


def test_ranges_are_balanced_by_size() -> None:
    tasks = assign([planned(0, 10), planned(1, 10), planned(2, 10), planned(3, 100)], 2)

    assert partitions(tasks) == [[3], [0, 1, 2]]


def test_partitions_keep_their_task_if_the_load_allows() -> None:
    previous = {TopicPartition("t", 0): 1, TopicPartition("t", 1): 0}

    assert partitions(assign([planned(0, 10), planned(1, 10)], 2, previous)) == [[1], [0]]


def test_balance_takes_precedence_over_the_previous_task() -> None:
    # The old assignment gave both large ranges to one task.
    previous = {TopicPartition("t", n): 0 for n in range(2)}

    assert sorted(partitions(assign([planned(0, 10), planned(1, 10)], 2, previous))) == [[0], [1]]


def test_ranges_without_records_are_spread_over_tasks() -> None:
    assert partitions(assign([planned(n, 0) for n in range(4)], 2)) == [[0, 2], [1, 3]]


def test_a_task_reads_its_partitions_in_sorted_order() -> None:
    [task] = assign([planned(2, 1), planned(0, 5), planned(1, 9)], 1)

    assert [share.partition for share in task] == [0, 1, 2]


def test_the_same_input_gives_the_same_assignment() -> None:
    ranges = [planned(n, n % 3) for n in range(9)]

    assert assign(ranges, 4) == assign(reversed(ranges), 4)
