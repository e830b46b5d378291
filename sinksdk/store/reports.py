"""Reports of drivers and tasks, for each other and for status pages.

Losing them loses no record: at worst a tail is read once in vain, or a total is too low. Times are in seconds
since the epoch.
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

PLAN_TIMEOUT: Final = 300.0
"""Seconds for which nothing may be planned where ``errors.retry.timeout`` has no limit: its default."""


class TaskStatus(Value):
    """The driver's state of a source's task, as :class:`PlannerState`."""

    task: int
    failures: int = 0
    failed_at: tuple[float, ...] = ()
    error: str | None = None
    trace: str | None = None


class Unavailable(OfPartition):
    """A partition that is not read until it has a leader."""

    since: float = Field(description="When it was first seen without, in seconds since the epoch.")


class ConnectorStatus(Value):
    """A connector's status.

    Args:
        driver: its name (``host:pid#number``).
        heartbeat: time of that driver's last write.
        partitions: written only by older drivers, as ``tasks``; otherwise in :class:`Remembered`, so that a
            heartbeat is small.
        trace: stack trace of the error that made it FAILED.
        missing_topics: subscribed topics that the source certainly does not have.
        unavailable: of many, the first ones.
        plan_timeout: seconds for which its next records may not be planned until that counts as a failure.
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
        """Why nothing has been planned for longer than ``plan_timeout``; None: it has, or may yet be."""
        if self.waiting is None or now - self.waiting.since < self.plan_timeout:
            return None
        return (
            f"nothing could be planned for {now - self.waiting.since:.0f} s, longer than "
            f"{self.plan_timeout:g} s (errors.retry.timeout); it is tried again: {self.waiting.reason}"
        )


class ConnectorEnds(Value):
    """End offsets of a connector's source and times of its last commits, by topic and partition.

    Partitions whose last commit time is unknown are not in ``committed_at``.

    Args:
        unknown_since: time since which the source does not respond: then ``ends`` may be outdated.
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
        """From partitions."""
        return cls(ends=_by_topic(ends), committed_at=_by_topic(committed_at), unknown_since=unknown_since)

    def ends_by_partition(self) -> dict[TopicPartition, int]:
        """``ends`` by partition."""
        return _by_partition(self.ends)

    def committed_at_by_partition(self) -> dict[TopicPartition, float]:
        """``committed_at`` by partition."""
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
    """A driver's state between generations; of a source, its failed tasks."""

    partitions: tuple[PlannerState, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()


Scalar = str | int | float | bool | None
"""A value in JSON that is neither an array nor an object."""


class SourcePartitionOffset(Value):
    """Offset of a source partition that the task has committed, or else only requested."""

    partition: dict[str, Scalar]
    offset: dict[str, Scalar]
    committed: bool = True


class SourceProgress(Value):
    """Progress of a source's running task.

    Args:
        state: its ``SourceTaskState``.
        records: in the ``transactions`` that it has committed in this generation.
        rate: records per second, lately.
        failure: why it has ended early.
        offsets: of many, those committed last; then it ``has_more_offsets``.
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
    """Progress of a running task, written at most every two seconds.

    Args:
        hangs: stack of the author's code, if it has not returned for too long.
        source: of a source, which has no ``partitions``.
    """

    generation: int
    attempt: int
    partitions: tuple[ReportedOutcome, ...]
    hangs: str | None = None
    measures: TaskMeasures = Field(default_factory=TaskMeasures)
    source: SourceProgress | None = None

    def as_json(self) -> dict[str, Any]:
        # By hand: pydantic takes three times as long for an outcome that it must look at field by field.
        rest = self.model_dump(mode="json", exclude={"partitions"})
        partitions = [as_report(outcome) for outcome in self.partitions]
        return {"generation": self.generation, "attempt": self.attempt, "partitions": partitions, **rest}


class TaskTotals(Value):
    """Measurements of one task number, of all generations together and of its last one."""

    task: int
    total: TaskMeasures
    last: TaskMeasures


class PartitionTotals(OfPartition):
    """Counters of one partition (``context.count``), of all generations together."""

    counts: dict[str, int]


class ConnectorTotals(Value):
    """Measurements and counters of a connector's generations, up to ``generation``.

    Args:
        partitions: those that the source has; it grows no further.
        vanished: sums of the counters of all others.
    """

    generation: int = 0
    tasks: tuple[TaskTotals, ...] = ()
    partitions: tuple[PartitionTotals, ...] = ()
    vanished: dict[str, int] = Field(default_factory=dict)


class Bucket(Value):
    """A connector's commits in an interval that began at ``start``.

    Args:
        records: that commits have covered.
        files: sum of the counter of this name (``context.count``).
        bytes: likewise.
        transactions: of a source, those of the committed records.
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
    """A connector's recent history; bounded, oldest first. Intervals without commits are left out."""

    buckets: tuple[Bucket, ...] = ()
    failures: tuple[PastFailure, ...] = ()
