"""What drivers and tasks report of themselves, for each other and for whoever watches.

Losing any of it costs no record: at worst a tail is read once in vain, or a total is too low.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import itemgetter
from typing import Any, Literal, Self, TypeVar

from pydantic import Field

from sinksdk.records import TopicPartition
from sinksdk.store.records import Value
from sinksdk.support.measures import TaskMeasures
from sinksdk.support.retry import Retry

T = TypeVar("T")


class Seen(Value):
    """When new records of a partition were first seen: below ``end``, at ``at`` (seconds since the epoch)."""

    end: int
    at: float


class Tail(Value):
    """Records above a commit that were read and kept back.

    Args:
        committed: the commit they follow.
        end: how far was read.
        records: how many there are, counted (offsets have gaps).
    """

    committed: int
    end: int
    records: int


class PartitionStatus(Value):
    """What the planner remembers of a partition from one generation to the next.

    Args:
        seen: when its unread records were first seen.
        failures: how often in a row it has failed.
        error: why, the last time.
        end: where the source ended when it was last asked.
        failed_at: when it failed lately, in a row or not, in seconds since the epoch.
        trace: stack trace of ``error``.
        density: records per offset, as they were found lately; None: nothing was read yet.
        in_vain: records that were read and kept back, to be read again, and that commits since do not
            outweigh.
        moved_at: when its task had it go back to an earlier offset lately, in seconds since the epoch.
        undiscarded: what is to be known of tokens that no commit covers and no task could discard.
        retry: ``error`` may pass, and is tried again then; it does not count as a failure.
    """

    topic: str
    partition: int
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

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose status this is."""
        return TopicPartition(self.topic, self.partition)


class TaskStatus(Value):
    """What is remembered of a source's task from one generation to the next.

    Args:
        failures: how often in a row it has failed.
        failed_at: when it failed lately, in a row or not, in seconds since the epoch.
        error: why, the last time.
        trace: stack trace of ``error``.
    """

    task: int
    failures: int = 0
    failed_at: tuple[float, ...] = ()
    error: str | None = None
    trace: str | None = None


class Waiting(Value):
    """What a connector waits for that is away and comes back by itself.

    Args:
        reason: how the last attempt at it failed.
        since: when the first one did, in seconds since the epoch.
        next_attempt: when the next one is, likewise.
        attempts: how many have failed.
    """

    reason: str
    since: float
    next_attempt: float
    attempts: int


class Unavailable(Value):
    """A partition without a leader: it is left out until it has one.

    Args:
        since: when it was first seen without, in seconds since the epoch.
    """

    topic: str
    partition: int
    since: float

    @property
    def topic_partition(self) -> TopicPartition:
        """Which it is."""
        return TopicPartition(self.topic, self.partition)


class ConnectorStatus(Value):
    """How a connector is doing.

    Args:
        state: Connect's states.
        driver: who drives it: host and process id.
        heartbeat: when that driver last said so, in seconds since the epoch.
        partitions: what older drivers remembered; it is in :class:`Remembered` now, so that a heartbeat is
            small.
        trace: stack trace of what made it FAILED.
        missing_topics: subscribed topics that are not in the source, once that is certain.
        tasks: as ``partitions``.
        waiting: what it waits for, if it does.
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
    """Where a connector's source ends, and when what was read of it was last committed, by topic and number.

    Args:
        ends: offset after the last record.
        committed_at: in seconds since the epoch; what was never committed, as far as is known, is left out.
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
    """What a connector's driver remembers from one generation to the next.

    Args:
        tasks: of a source: those that have failed.
    """

    partitions: tuple[PartitionStatus, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()


class PartitionProgress(Value):
    """How far a running task is with one partition.

    Args:
        position: offset after the last record the task accepted.
        committed: next offset to read after the last commit.
        records: records accepted in this generation.
        failure: why it ended early.
        rate: records per second, lately.
        tail: of ``records``, those above the commit.
        visible: next offset to read after the last commit that is published; None if that is not known.
        is_final: of a ``failure``: the connector fails with it at once.
        retry: of a ``failure``: it may pass, and a later generation tries it again.
    """

    topic: str
    partition: int
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

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose progress this is."""
        return TopicPartition(self.topic, self.partition)


class SourcePartitionOffset(Value):
    """How far a source partition is read.

    Args:
        offset: where to read on after it.
        committed: whether the task that tells of it has committed it; else it has only asked for it.
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
        offsets: how far source partitions are read, as far as the task has asked or committed; of many,
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
    """How far a running task is; written at most every two seconds, informs only.

    Args:
        hangs: its author's code has not come back for too long: where it is.
        source: how far it is, if it is a source's; it has no partitions then.
    """

    generation: int
    attempt: int
    partitions: tuple[PartitionProgress, ...]
    hangs: str | None = None
    measures: TaskMeasures = Field(default_factory=TaskMeasures)
    source: SourceProgress | None = None


class TaskTotals(Value):
    """One task number's measures.

    Args:
        total: of all generations together.
        last: of the newest one it took part in.
    """

    task: int
    total: TaskMeasures
    last: TaskMeasures


class PartitionTotals(Value):
    """What tasks have counted of one partition (``context.count``), in all generations together."""

    topic: str
    partition: int
    counts: dict[str, int]

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose counts these are."""
        return TopicPartition(self.topic, self.partition)


class ConnectorTotals(Value):
    """What a connector's generations have measured and counted. Informs only.

    Args:
        generation: the newest one that is in it; what tasks of a newer one report comes on top.
    """

    generation: int = 0
    tasks: tuple[TaskTotals, ...] = ()
    partitions: tuple[PartitionTotals, ...] = ()


class Bucket(Value):
    """What a connector has committed in a stretch of time.

    Args:
        start: when that began, in seconds since the epoch.
        records: records that commits have covered.
        files: ``files`` as the connector counts them (``context.count``).
        bytes: ``bytes``, likewise.
        transactions: of a source, those that it has committed these records in.
    """

    start: int
    records: int
    files: int = 0
    bytes: int = 0
    transactions: int = 0


class PastFailure(Value):
    """Why partitions, or tasks of a source, ended early, lately; it stays when they do better.

    Args:
        topic: of the last partition that ended so; empty if it was a task of a source.
        at: when that was, in seconds since the epoch.
        times: how often one did.
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
    """What a connector did lately; for whoever watches, and bounded.

    Args:
        buckets: what was committed, oldest first; stretches without commits are left out.
        failures: what failed, the last one last.
    """

    buckets: tuple[Bucket, ...] = ()
    failures: tuple[PastFailure, ...] = ()
