"""The values the store keeps, as typed, frozen models.

Their formats are a contract: a store written by one version is read by the next. Partitions stand in
lists, with ``topic`` and ``partition`` of their own, so that any topic name will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sinksdk.context import ClosingReason
from sinksdk.records import OffsetAndMetadata, OffsetRange, Token, TopicPartition

TargetState = Literal["RUNNING", "PAUSED", "STOPPED"]
"""Connect's target states."""


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
