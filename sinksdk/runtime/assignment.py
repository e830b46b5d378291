"""Ranges to tasks: balanced by size, sticky where that costs nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sinksdk.records import TopicPartition
from sinksdk.store.records import PlannedRange


def assign(
    ranges: Iterable[PlannedRange],
    max_tasks: int,
    previous: Mapping[TopicPartition, int] | None = None,
) -> list[tuple[PlannedRange, ...]]:
    """Divide ranges among at most ``max_tasks`` tasks, none of them empty.

    The largest range goes to the least loaded task first. Among equally loaded tasks it stays with
    the one that had it before, so that a task's caches keep their worth; balance is never given up
    for it.

    Args:
        ranges: what a generation reads; a partition at most once.
        max_tasks: ``tasks.max``.
        previous: task of each partition in the generation before.

    Returns:
        Per task its ranges, ordered by topic and partition.
    """
    ordered = sorted(ranges, key=lambda planned: (planned.start - planned.end, planned.topic_partition))
    tasks: list[list[PlannedRange]] = [[] for _ in range(min(max_tasks, len(ordered)))]
    loads = [(0, 0)] * len(tasks)  # offsets, then ranges: those without records count too
    for planned in ordered:
        least = min(loads)
        before = (previous or {}).get(planned.topic_partition, -1)
        stays = 0 <= before < len(tasks) and loads[before] == least
        task = before if stays else loads.index(least)
        tasks[task].append(planned)
        loads[task] = (loads[task][0] + planned.end - planned.start, loads[task][1] + 1)
    return [tuple(sorted(shares, key=lambda planned: planned.topic_partition)) for shares in tasks if shares]
