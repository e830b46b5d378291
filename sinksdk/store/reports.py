"""What drivers and tasks report of themselves, for each other and for whoever watches.

Losing any of it costs no record: at worst a tail is read once in vain, or a total is too low. Times are in
seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal, Self, TypeVar

from pydantic import Field

from sinksdk.records import TopicPartition
from sinksdk.store.records import OfPartition, Value
from sinksdk.support.measures import TaskMeasures
from sinksdk.support.retry import Retry

T = TypeVar("T")


class Seen(Value):
    """When new records of a partition, those below offset ``end``, were first seen."""

    end: int
    at: float


class Tail(Value):
    """Records above a commit that were read and kept back.

    Args:
        committed: the offset of that commit.
        end: offset up to which was read.
        records: how many there are, counted (offsets have gaps).
    """

    committed: int
    end: int
    records: int


class PartitionStatus(OfPartition):
    """What the planner remembers of a partition from one generation to the next.

    Args:
        seen: when its unread records were first seen.
        failures: how often in a row it has failed.
        error: why, the last time.
        end: where the source ended when it was last asked.
        failed_at: its latest failures, in a row or not.
        trace: stack trace of ``error``.
        density: records per offset, as they were found lately; None: nothing was read yet.
        in_vain: records that were read, kept back, and have to be read again, less those committed since.
        moved_at: when its task has lately moved it back to an earlier offset.
        undiscarded: why tokens that no commit covers could not be discarded.
        retry: ``error`` may pass, and is tried again then; it does not count as a failure.
    """

    # Its fields are a format: older versions have written them.
    seen: tuple[Seen, ...] = ()
    tail: Tail | None = None
    failures: int = 0
    error: str | None = None
    end: int | None = None
    failed_at: tuple[float, ...] = ()
    trace: str | None = None
    density: float | None = None
    in_vain: int = 0
    moved_at: tuple[float, ...] = ()
    undiscarded: str | None = None
    retry: Retry | None = None


class TaskStatus(Value):
    """What is remembered of a source's task, as :class:`PartitionStatus`."""

    task: int
    failures: int = 0
    failed_at: tuple[float, ...] = ()
    error: str | None = None
    trace: str | None = None


class Waiting(Value):
    """What a connector waits for that is unavailable and comes back by itself.

    Args:
        reason: how the last attempt failed.
        since: when the first one did.
        attempts: how many have failed.
    """

    reason: str
    since: float
    next_attempt: float
    attempts: int


class Unavailable(OfPartition):
    """A partition that is left out until it has a leader, and since when."""

    since: float


class ConnectorStatus(Value):
    """How a connector is doing.

    Args:
        state: Connect's states.
        driver: its name (``host:pid#number``).
        heartbeat: when that driver last wrote this.
        partitions: only in what older drivers have written; else in :class:`Remembered`, so that a heartbeat
            is small.
        trace: stack trace of what made it FAILED.
        missing_topics: subscribed topics that the source certainly does not have.
        tasks: as ``partitions``.
        unavailable: partitions without a leader; of many, the first ones.
        unavailable_count: how many there are.
    """

    state: Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"] = "UNASSIGNED"
    driver: str = ""
    heartbeat: float = 0.0
    partitions: tuple[PartitionStatus, ...] = ()
    trace: str | None = None
    missing_topics: tuple[str, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()
    waiting: Waiting | None = None
    unavailable: tuple[Unavailable, ...] = ()
    unavailable_count: int = 0


class ConnectorEnds(Value):
    """Where a connector's source ends, and when its partitions were last committed, by topic and number.

    Args:
        ends: offset after the last record.
        committed_at: without partitions whose last commit has no known time.
    """

    ends: dict[str, dict[int, int]] = Field(default_factory=dict)
    committed_at: dict[str, dict[int, float]] = Field(default_factory=dict)

    @classmethod
    def of(cls, ends: Mapping[TopicPartition, int], committed_at: Mapping[TopicPartition, float]) -> Self:
        """The same, from partitions."""
        return cls(ends=_by_topic(ends), committed_at=_by_topic(committed_at))

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
    """What a connector's driver remembers from one generation to the next; of a source, its failed tasks."""

    partitions: tuple[PartitionStatus, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()


class PartitionProgress(OfPartition):
    """How far a running task is with one partition.

    Args:
        position: offset after the last record the task accepted.
        committed: next offset to read after the last commit.
        records: records accepted in this generation.
        failure: why it ended early.
        rate: records per second, lately.
        tail: of ``records``, those above the commit.
        visible: next offset to read after the last commit that is published; None if that is not known.
        is_final: the ``failure`` makes the connector FAILED at once.
        retry: the ``failure`` may pass, and a later generation tries the partition again.
    """

    position: int
    committed: int | None
    records: int
    counts: dict[str, int] = Field(default_factory=dict)
    failure: str | None = None
    rate: float = 0.0
    tail: int = 0
    visible: int | None = None
    is_final: bool = False
    retry: Retry | None = None


class SourcePartitionOffset(Value):
    """How far a source partition is read.

    Args:
        offset: where to read on after it.
        committed: whether the task has committed it; else it has only asked for it.
    """

    partition: dict[str, Any]
    offset: dict[str, Any]
    committed: bool = True


class SourceProgress(Value):
    """How far a source's running task is.

    Args:
        state: which calls it has had (``SourceTaskState``).
        records: records in transactions that it has committed in this generation.
        transactions: how many of these there were.
        rate: records per second, lately.
        failure: why it has ended early.
        trace: stack trace of ``failure``.
        offsets: of the source partitions that the task has asked for, or committed something of; of many,
            those that something was committed of last.
        has_more_offsets: whether there are others.
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
    """How far a running task is, written at most every two seconds.

    Args:
        partitions: of a sink.
        hangs: the author's code has not come back for too long: where it is.
        source: of a source.
    """

    generation: int
    attempt: int
    partitions: tuple[PartitionProgress, ...]
    hangs: str | None = None
    measures: TaskMeasures = Field(default_factory=TaskMeasures)
    source: SourceProgress | None = None


class TaskTotals(Value):
    """One task number's measures, of all generations together and of the last one it took part in."""

    task: int
    total: TaskMeasures
    last: TaskMeasures


class PartitionTotals(OfPartition):
    """What tasks have counted of one partition (``context.count``), in all generations together."""

    counts: dict[str, int]


class ConnectorTotals(Value):
    """What a connector's generations have measured and counted, up to ``generation``."""

    generation: int = 0
    tasks: tuple[TaskTotals, ...] = ()
    partitions: tuple[PartitionTotals, ...] = ()


class Bucket(Value):
    """What a connector has committed in a stretch of time that began at ``start``.

    Args:
        records: records that commits have covered.
        files: what the connector counts as ``files`` (``context.count``).
        bytes: what it counts as ``bytes``.
        transactions: of a source, those that it has committed the records in.
    """

    start: int
    records: int
    files: int = 0
    bytes: int = 0
    transactions: int = 0


class PastFailure(Value):
    """Why partitions, or tasks of a source, have ended early; it stays when they do better.

    Args:
        topic: of the last partition that ended so; empty if it was a task of a source.
        at: when the last one did.
        times: how many have.
        trace: the end of its stack trace.
        task: number of the task, if it was one of a source.
    """

    topic: str = ""
    partition: int = 0
    at: float
    times: int
    message: str
    trace: str
    task: int | None = None


class ConnectorHistory(Value):
    """What a connector has done lately; bounded.

    Args:
        buckets: oldest first; stretches without commits are left out.
        failures: the last one last.
    """

    buckets: tuple[Bucket, ...] = ()
    failures: tuple[PastFailure, ...] = ()
