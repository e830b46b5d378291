"""What is kept under which key: the store's values as typed, frozen models.

Keys and value formats are a contract: a store written by one version is read by the next. Partitions
stand in lists, with ``topic`` and ``partition`` of their own, so that any topic name will do.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal
from urllib.parse import quote, unquote

from pydantic import BaseModel, ConfigDict, Field

from sinksdk.context import ClosingReason
from sinksdk.measures import TaskMeasures
from sinksdk.records import OffsetAndMetadata, OffsetRange, Token, TopicPartition

STORE_KEY = "store"
CONNECTORS = "connectors/"
"""What the keys of all connectors begin with."""

TargetState = Literal["RUNNING", "PAUSED", "STOPPED"]
"""Connect's target states."""


def config_key(connector: str) -> str:
    """Configuration, incarnation, target state."""
    return f"{_root(connector)}/config"


def connector_prefix(connector: str) -> str:
    """What all keys of a connector begin with."""
    return f"{_root(connector)}/"


def connector_of(key: str) -> str | None:
    """The name of the connector whose configuration a key holds, None for other keys."""
    root, _, last = key.rpartition("/")
    return unquote(root.removeprefix(CONNECTORS)) if last == "config" else None


def task_count_key(connector: str) -> str:
    """The task count record (KIP-618)."""
    return f"{_root(connector)}/tasks-count"


def plan_key(connector: str, generation: int) -> str:
    """The plan of one generation."""
    return f"{_root(connector)}/generations/{generation:012d}"


def plans_prefix(connector: str) -> str:
    """Plans of all generations that are still kept, oldest first."""
    return f"{_root(connector)}/generations/"


def task_key(connector: str, task: int) -> str:
    """One task's writes."""
    return f"{_root(connector)}/tasks/{task}"


def status_key(connector: str) -> str:
    """States, first-seen times, tails, last error."""
    return f"{_root(connector)}/status"


def progress_key(connector: str, task: int) -> str:
    """One task's positions while it runs."""
    return f"{_root(connector)}/progress/{task}"


def progress_prefix(connector: str) -> str:
    """Positions of all tasks."""
    return f"{_root(connector)}/progress/"


def totals_key(connector: str) -> str:
    """What all tasks have measured and counted, up to the last generation that ended."""
    return f"{_root(connector)}/totals"


def history_key(connector: str) -> str:
    """What was committed and what failed, lately."""
    return f"{_root(connector)}/history"


@functools.lru_cache(maxsize=256)
def _root(connector: str) -> str:
    return f"{CONNECTORS}{quote(connector, safe='')}"


class Value(BaseModel):
    """Base of everything the store keeps. Unknown fields are kept out, missing ones are errors."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    def as_json(self) -> dict[str, Any]:
        """The value as the store writes it."""
        return self.model_dump(mode="json")


class StoreIdentity(Value):
    """Tells this store from an empty one that happens to have its address."""

    id: str


class Orders(Value):
    """How often an operator has asked for what is done once; a driver compares with how often it did it.

    Args:
        restart: stop the connector and all its tasks, and start them again.
        restart_failed: open failed partitions again, at once and with all their attempts.
        rebalance: end the running generation early, closing.
        flush: commit everything that is there now, tails included.
    """

    restart: int = 0
    restart_failed: int = 0
    rebalance: int = 0
    flush: int = 0


class ConnectorRecord(Value):
    """A connector as an operator wants it.

    Args:
        config: the configuration as written, references unresolved.
        version: counts its changes.
        incarnation: new each time the name is created.
        target_state: what the operator wants.
        orders: what else was asked for.
        claimed: the newest generation whose driver has brought its own configuration.
        deleted: being deleted: outside resources are cleaned up before this record goes.
    """

    config: dict[str, str]
    version: int = 1
    incarnation: str
    target_state: TargetState = "RUNNING"
    orders: Orders = Orders()
    claimed: int = 0
    deleted: bool = False


class TaskCountRecord(Value):
    """The task count record.

    Args:
        claimed: the newest generation; whoever has an older one is fenced.
        planned: the newest generation whose plan exists; its tasks are the ones to fence.
        tasks: how many tasks that plan has.
        config_version: version of the configuration it was made with.
        transactional_tasks: how many tasks of a source may still write through transactional ids: as many
            are fenced before others start (KIP-618). It outlives the connector. None: there never were any.
    """

    claimed: int
    planned: int = 0
    tasks: int = 0
    config_version: int = 0
    transactional_tasks: int | None = None


class Entry(Value):
    """One partition's commit.

    Args:
        offset: next offset to read.
        metadata: the author's text.
        publish: tokens committed with it and not published yet.
        generation: the generation that wrote it; of two entries the higher one holds.
        withdrawn_from: the offset it was at before it was withdrawn to this one, because what it covered
            could never be published; None for every other commit.
    """

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    publish: tuple[Token, ...] = ()
    generation: int
    withdrawn_from: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose commit this is."""
        return TopicPartition(self.topic, self.partition)

    def committed(self) -> OffsetAndMetadata:
        """The entry as authors see it."""
        return OffsetAndMetadata(self.offset, self.metadata, self.publish)

    @classmethod
    def of(cls, partition: TopicPartition, offset: OffsetAndMetadata, generation: int) -> Entry:
        """A commit made in that generation."""
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset.offset,
            metadata=offset.metadata,
            publish=offset.tokens,
            generation=generation,
        )


class Noted(Value):
    """Tokens of one partition that no commit covers."""

    topic: str
    partition: int
    tokens: tuple[Token, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose tokens these are."""
        return TopicPartition(self.topic, self.partition)


class PlannedRange(Value):
    """Offsets [start, end) of one partition, the most its generation will read of it.

    Args:
        due: the end is closing: what is left over is flushed and committed too.
    """

    topic: str
    partition: int
    start: int
    end: int
    due: bool = False

    @property
    def topic_partition(self) -> TopicPartition:
        """What is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> OffsetRange:
        """What of it."""
        return OffsetRange(self.start, self.end)


class TaskPlan(Value):
    """One task's share of a generation.

    Args:
        ranges: read one after the other.
        config: entries in which the task's configuration differs from the connector's.
    """

    ranges: tuple[PlannedRange, ...]
    config: dict[str, str] = Field(default_factory=dict)


class Closing(Value):
    """A running generation shall close.

    Args:
        reason: why.
        timeout: seconds the tasks have for it, from when they see it.
        successor: the driver that waits to take over; whoever runs the generation ends after it.
        answered: it has ended, and its driver does nothing more.
        asked: when, in seconds since the epoch.
    """

    reason: ClosingReason
    timeout: float
    successor: str | None = None
    answered: bool = False
    asked: float | None = None


class GenerationPlan(Value):
    """The plan of one generation.

    Args:
        committed: every partition's commit at its start.
        stale: tokens that no commit covers, not yet discarded.
        config: the configuration its tasks run with, as written: a driver that was overtaken may still
            change the connector's, but never what a planned generation does.
        topic_ids: id of each topic of which something was read, as it was when it was first planned;
            topics of a source without such ids are not in it.
        closing: set while it runs, once it shall close.
    """

    generation: int
    config_version: int
    tasks: tuple[TaskPlan, ...]
    committed: tuple[Entry, ...]
    stale: tuple[Noted, ...] = ()
    config: dict[str, str] = Field(default_factory=dict)
    topic_ids: dict[str, str] = Field(default_factory=dict)
    closing: Closing | None = None


class TaskRecord(Value):
    """What one task has written: the record that plays the part of a transactional id.

    Args:
        generation: who may write it: tasks of this generation only.
        attempt: which attempt at the task; 0 when it was only fenced.
        written: the generation whose task wrote what stands below; fencing leaves it as it is. None:
            ``generation``.
        entries: commits.
        prepared: tokens noted that no commit covers.
        discarded: ids of tokens of the plan's ``stale`` that are discarded.
    """

    generation: int
    attempt: int = 0
    written: int | None = None
    entries: tuple[Entry, ...] = ()
    prepared: tuple[Noted, ...] = ()
    discarded: tuple[str, ...] = ()

    @property
    def content_generation(self) -> int:
        """Which generation's task wrote the entries and tokens."""
        return self.generation if self.written is None else self.written


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
        tail: what was read and kept back.
        failures: how often in a row it has failed.
        error: why, the last time.
        end: where the source ended when it was last asked.
        failed_at: when it failed lately, in a row or not, in seconds since the epoch.
        trace: stack trace of ``error``.
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

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose status this is."""
        return TopicPartition(self.topic, self.partition)


class TaskStatus(Value):
    """What is remembered of a source's task from one generation to the next.

    Args:
        task: its number.
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


class ConnectorStatus(Value):
    """How a connector is doing.

    Args:
        state: Connect's states.
        driver: who drives it: host and process id.
        heartbeat: when that driver last said so, in seconds since the epoch.
        trace: stack trace of what made it FAILED.
        missing_topics: subscribed topics that are not in the source, once that is certain.
        tasks: of a source: those that have failed.
    """

    state: Literal["UNASSIGNED", "RUNNING", "PAUSED", "STOPPED", "FAILED", "RESTARTING"] = "UNASSIGNED"
    driver: str = ""
    heartbeat: float = 0.0
    partitions: tuple[PartitionStatus, ...] = ()
    trace: str | None = None
    missing_topics: tuple[str, ...] = ()
    tasks: tuple[TaskStatus, ...] = ()


class PartitionProgress(Value):
    """How far a running task is with one partition.

    Args:
        position: offset after the last record the task accepted.
        committed: next offset to read after the last commit.
        records: records accepted in this generation.
        counts: what the task counted.
        failure: why it ended early.
        rate: records per second, lately.
        tail: of ``records``, those above the commit.
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

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose progress this is."""
        return TopicPartition(self.topic, self.partition)


class SourcePartitionOffset(Value):
    """How far a source partition is read.

    Args:
        partition: which part of the source.
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
        measures: what this attempt has measured.
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
        task: which.
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
        partition: its number.
        at: when that was, in seconds since the epoch.
        times: how often one did.
        message: what the exception said.
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


def noted(tokens: Mapping[TopicPartition, Iterable[Token]]) -> tuple[Noted, ...]:
    """Tokens by partition as the store keeps them; partitions without any are left out."""
    rows = [
        Noted(topic=p.topic, partition=p.partition, tokens=tuple(given))
        for p, given in sorted(tokens.items())
    ]
    return tuple(row for row in rows if row.tokens)


def by_partition(rows: Sequence[Noted]) -> dict[TopicPartition, dict[str, Token]]:
    """Noted tokens by partition and id."""
    return {row.topic_partition: {token.id: token for token in row.tokens} for row in rows}
