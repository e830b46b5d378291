"""Reports of drivers and tasks; times are seconds since the epoch.

Losing them loses no record: at worst a tail is read again without result, or a total is too low.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Final, Literal, Self, TypeVar

from pydantic import Field

from sinksdk.model.base import OfPartition, Value
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import ReportedOutcome, as_report
from sinksdk.model.plan import PlannerState
from sinksdk.model.status import Waiting
from sinksdk.offsets import TopicPartition

T = TypeVar("T")

# Seconds without a plan that count as a failure where errors.retry.timeout has no limit.
PLAN_TIMEOUT: Final = 300.0


class TaskStatus(Value):
    task: int
    failures: int = 0
    failed_at: tuple[float, ...] = ()
    error: str | None = None
    trace: str | None = None


class Unavailable(OfPartition):
    """A partition that is not read until it has a leader."""

    since: float = Field(description="Time at which it was first without one, in seconds since the epoch.")


class ConnectorStatus(Value):
    """A connector's status.

    Args:
        partitions: like ``tasks``, written by older drivers only; see :class:`Remembered`.
        unavailable: only the first ones of many.
        plan_timeout: seconds without a plan that count as a failure.
    """

    state: Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"] = "UNASSIGNED"
    driver: str = ""
    heartbeat: float = 0.0
    partitions: tuple[PlannerState, ...] = ()
    trace: str | None = None
    missing_topics: tuple[str, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    waiting: Waiting | None = None
    unavailable: tuple[Unavailable, ...] = ()
    unavailable_count: int = 0
    plan_timeout: float = PLAN_TIMEOUT

    def overdue(self, now: float) -> str | None:
        """Return why nothing was planned for ``plan_timeout``; None unless the wait is that long."""
        if self.waiting is None or now - self.waiting.since < self.plan_timeout:
            return None
        return (
            f"no generation could be planned for {now - self.waiting.since:.0f} s, longer than "
            f"{self.plan_timeout:g} s (errors.retry.timeout); retrying: {self.waiting.reason}"
        )


class ConnectorEnds(Value):
    """End offsets and known times of last commits, by topic and partition.

    Args:
        unknown_since: time since which the source does not respond.
    """

    ends: dict[str, dict[int, int]] = Field(default_factory=dict)
    committed_at: dict[str, dict[int, float]] = Field(default_factory=dict)
    unknown_since: float | None = None

    @classmethod
    def of(
        cls,
        ends: Mapping[TopicPartition, int],
        committed_at: Mapping[TopicPartition, float],
        unknown_since: float | None = None,
    ) -> Self:
        return cls(ends=_by_topic(ends), committed_at=_by_topic(committed_at), unknown_since=unknown_since)

    def ends_by_partition(self) -> dict[TopicPartition, int]:
        return _by_partition(self.ends)

    def committed_at_by_partition(self) -> dict[TopicPartition, float]:
        return _by_partition(self.committed_at)


def _by_topic(values: Mapping[TopicPartition, T]) -> dict[str, dict[int, T]]:
    found: dict[str, dict[int, T]] = {}
    for (topic, number), value in sorted(values.items(), key=itemgetter(0)):
        found.setdefault(topic, {})[number] = value
    return found


def _by_partition(values: Mapping[str, Mapping[int, T]]) -> dict[TopicPartition, T]:
    return {
        TopicPartition(topic, number): value
        for topic, numbers in values.items()
        for number, value in numbers.items()
    }


class Remembered(Value):
    """A driver's state between generations, outside the status to keep heartbeats small."""

    partitions: tuple[PlannerState, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()


Scalar = str | int | float | bool | None


class SourcePartitionOffset(Value):
    """A source partition's offset, committed or only requested by the task."""

    partition: dict[str, Scalar]
    offset: dict[str, Scalar]
    committed: bool = True


class SourceProgress(Value):
    """Progress of a source's running task.

    Args:
        rate: recent records per second.
        offsets: the last committed ones, if there are many.
    """

    state: str
    records: int = 0
    transactions: int = 0
    rate: float = 0.0
    failure: str | None = None
    trace: str | None = None
    offsets: tuple[SourcePartitionOffset, ...] = ()
    has_more_offsets: bool = False


class TaskProgress(Value):
    """Progress of a running task; ``hangs`` is the stack of author code that does not return."""

    generation: int
    attempt: int
    partitions: tuple[ReportedOutcome, ...]
    hangs: str | None = None
    measures: TaskMeasures = Field(default_factory=TaskMeasures)
    source: SourceProgress | None = None

    def as_json(self) -> dict[str, Any]:
        # Written by hand, because pydantic takes three times as long to dump outcomes field by field.
        rest = self.model_dump(mode="json", exclude={"partitions"})
        partitions = [as_report(outcome) for outcome in self.partitions]
        return {"generation": self.generation, "attempt": self.attempt, "partitions": partitions, **rest}


class TaskTotals(Value):
    task: int
    total: TaskMeasures
    last: TaskMeasures


class PartitionTotals(OfPartition):
    counts: dict[str, int]


class ConnectorTotals(Value):
    """Measurements and counters up to ``generation``.

    Args:
        partitions: those that the source has, so that the list does not grow for ever.
        vanished: sums of the counters of all others.
    """

    generation: int = 0
    tasks: tuple[TaskTotals, ...] = ()
    partitions: tuple[PartitionTotals, ...] = ()
    vanished: dict[str, int] = Field(default_factory=dict)


class Bucket(Value):
    """A connector's commits in an interval that began at ``start``.

    Args:
        records: number of records that these commits covered.
        files: sum of the counter ``files`` (``context.count``).
        bytes: sum of the counter ``bytes``.
        transactions: number of a source's committed transactions.
    """

    start: int
    records: int
    files: int = 0
    bytes: int = 0
    transactions: int = 0


class PastFailure(Value):
    """A past failure of partitions, or of a source's tasks; kept after they recover.

    Args:
        topic: of the last failed partition; empty for a task of a source, which has its number in ``task``.
        at: time of the last one, in seconds since the epoch.
        times: number of failures.
        trace: the end of its stack trace.
    """

    topic: str = ""
    partition: int = 0
    at: float
    times: int
    message: str
    trace: str
    task: int | None = None


class ConnectorHistory(Value):
    """Recent history, oldest first; intervals without commits are left out."""

    buckets: tuple[Bucket, ...] = ()
    failures: tuple[PastFailure, ...] = ()
