"""The values in the store, as typed, frozen models; their formats are a contract (docs/store-format.md).

Partitions stand in lists, with their topic as a field, so that a topic may have any name.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Final, Literal

from pydantic import BeforeValidator, Field

from sinksdk.context import ClosingReason
from sinksdk.model.base import Lasting, NamedPartition, Value
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition

TargetState = Literal["RUNNING", "PAUSED", "STOPPED"]

# The kind never changes while the name exists, because commits of another kind mean something else.
ConnectorKind = Literal["sink", "source", "dataframe"]

Order = Literal["restart", "restart_failed", "rebalance", "flush"]


def _known(token: object) -> object:
    # A token is written back whole, without the fields of newer versions.
    return {key: token[key] for key in ("id", "data") if key in token} if isinstance(token, dict) else token


KeptToken = Annotated[Token, BeforeValidator(_known)]


class StoreIdentity(Value):
    """Distinguishes the store from an empty one at the same address."""

    id: str


class Orders(Lasting):
    """Numbers of an operator's requests; the driver compares them with those it has carried out."""

    restart: int = 0
    restart_failed: int = 0
    rebalance: int = 0
    flush: int = 0


class ConnectorRecord(Lasting):
    """A connector's configuration and target state.

    Args:
        version: counts changes of ``config``, which is stored as written.
        incarnation: new each time the name is created.
        claimed: the newest generation whose driver has stored its own configuration.
        forced: the deletion drops committed tokens that cannot be published.
        kind: None: an older version created the record, or the class cannot be loaded.
    """

    config: dict[str, str]
    version: int = 1
    incarnation: str
    target_state: TargetState = "RUNNING"
    orders: Orders = Orders()
    claimed: int = 0
    deleted: bool = False
    forced: bool = False
    kind: ConnectorKind | None = None


class ClaimedBy(Lasting):
    generation: int
    driver: str


class TaskCountRecord(Lasting):
    """The task count record (KIP-618).

    Args:
        planned: the newest generation with a plan, whose tasks are to be fenced.
        transactional_tasks: number of source tasks to fence before others start. It outlives the connector.
            None: there never were any.
        claimed_by: of an older generation if an operator's request or an older version has claimed.
    """

    claimed: int
    planned: int = 0
    tasks: int = 0
    config_version: int = 0
    transactional_tasks: int | None = None
    claimed_by: ClaimedBy | None = None

    @property
    def driver(self) -> str | None:
        by = self.claimed_by
        return by.driver if by is not None and by.generation == self.claimed else None


class PartitionCommit(NamedPartition):
    """One partition's commit.

    Args:
        offset: next offset to read.
        publish: tokens that are not published yet.
        generation: wrote the commit; of two commits, the newer one's counts.
        withdrawn_from: the offset before the commit was withdrawn to this one.
        published_to: while ``publish`` has tokens, the offset below which everything is published. None:
            unknown, as in a first commit.
        records: committed by all attempts of ``generation``; 0 also if unknown.
        partly_visible_to: the offset after the last visible record above a withdrawn commit.
        leader_epoch: of the log when ``offset`` was planned: no record below it has a higher one (KIP-320).
            None, for instance, if an operator has set the offset.
        due: the offset after the last accepted record; after it the range had no, bad or filtered records.
            None: unknown.
    """

    offset: int
    metadata: str = ""
    publish: tuple[KeptToken, ...] = ()
    generation: int
    withdrawn_from: int | None = None
    published_to: int | None = None
    records: int = 0
    partly_visible_to: int | None = None
    leader_epoch: int | None = None
    due: int | None = None

    def as_offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.offset, self.metadata, self.publish)

    @property
    def visible(self) -> int | None:
        return self.published_to if self.publish else self.offset

    def withdrawn_to(self, offset: int, generation: int) -> PartitionCommit:
        changed = {
            "offset": offset,
            "publish": (),
            "published_to": None,
            "generation": generation,
            "withdrawn_from": self.offset,
            "records": 0,
            "partly_visible_to": None,
            "due": None,
        }
        return self.model_copy(update=changed)

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        generation: int,
        before: PartitionCommit | None = None,
        records: int = 0,
        *,
        leader_epoch: int | None = None,
        due: int | None = None,
    ) -> PartitionCommit:
        ahead = before.partly_visible_to if before else None
        # Nothing was read: the log is still that of the commit before.
        if leader_epoch is None and before is not None and offset.offset <= before.offset:
            leader_epoch = before.leader_epoch
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset.offset,
            metadata=offset.metadata,
            publish=offset.tokens,
            generation=generation,
            published_to=before.visible if before and offset.tokens else None,
            records=records,
            partly_visible_to=ahead if ahead is not None and ahead > offset.offset else None,
            leader_epoch=leader_epoch,
            due=due,
        )


class PreparedTokens(NamedPartition):
    tokens: tuple[KeptToken, ...]


class RetiredTokens(NamedPartition):
    """Digests of token ids that must not be prepared again, the oldest first."""

    ids: tuple[str, ...]


def empty_range(partition: TopicPartition, committed: PartitionCommit | None) -> RangePlan:
    at = committed.offset if committed else 0
    return RangePlan.of(partition, at, at)


class TaskPlan(Lasting):
    ranges: tuple[RangePlan, ...]
    # Entries that this task has in addition to the connector's configuration, or with another value.
    config: dict[str, str] = Field(default_factory=dict)


class Closing(Lasting):
    """A request to close a running generation.

    Args:
        timeout: seconds, from when the tasks see the request.
        successor: the driver that waits to take over.
        answered: the former driver has stopped.
        asked: in seconds since the epoch.
    """

    reason: ClosingReason
    timeout: float
    successor: str | None = None
    answered: bool = False
    asked: float | None = None


class Undecided(Lasting):
    """Partitions without a commit whose start the next driver decides; others begin at their first record.

    Args:
        first: all of them, as the connector has never run: ``offset.source`` counts too.
        reset: all of them.
        partitions: those whose commits an operator has removed.
    """

    first: bool = False
    reset: bool = False
    partitions: tuple[NamedPartition, ...] = ()

    def covers(self, partition: TopicPartition) -> bool:
        return self.first or self.reset or any(p.topic_partition == partition for p in self.partitions)


class Dropped(Lasting):
    committed: tuple[PartitionCommit, ...]
    topic_ids: dict[str, str] = Field(default_factory=dict)


class WrittenBatch(Lasting):
    """A streaming query's newest committed micro-batch, or a batch write (no ``batch``)."""

    query: str  # the id stays as long as the query's checkpoint
    batch: int | None = None

    def __str__(self) -> str:
        if self.batch is None:
            return f"batch write {self.query}"
        return f"micro-batch {self.batch} of query {self.query}"


class FrameState(Lasting):
    """State of a connector that DataFrames are written to.

    Args:
        writer: run id of the writing query, new at each start.
        is_open: otherwise the tasks only publish and discard.
        written: newest batch of each query, the latest one last.
        superseded: run ids of fenced writers, the latest one last.
    """

    writer: str
    is_open: bool = False
    written: tuple[WrittenBatch, ...] = ()
    superseded: tuple[str, ...] = ()


class GenerationPlan(Lasting):
    """The plan of one generation.

    Args:
        stale: tokens that no commit covers, not yet discarded.
        config: the connector's configuration when the generation was planned, as written. Tasks read it here,
            because a fenced driver may still change the connector's record, but no plan.
        undecided: only in plans written when an operator altered offsets.
        dropped: the generation whose driver has stored commits of topics no longer read as :class:`Dropped`.
        retired: ids of discarded tokens, which a frozen task may discard again.
    """

    generation: int
    config_version: int
    tasks: tuple[TaskPlan, ...]
    committed: tuple[PartitionCommit, ...]
    stale: tuple[PreparedTokens, ...] = ()
    config: dict[str, str] = Field(default_factory=dict)
    topic_ids: dict[str, str] = Field(default_factory=dict)
    undecided: Undecided | None = None
    closing: Closing | None = None
    dropped: int | None = None
    frames: FrameState | None = None
    retired: tuple[RetiredTokens, ...] = ()

    @property
    def format(self) -> int:
        # An older sinksdk would lose the numbers of DataFrames (4), or commits of dropped topics (3).
        if self.frames is not None:
            return 4
        return 1 if self.dropped is None else 3


class Begun(Lasting):
    """The write that last began on a DataFrame's partition since its last commit.

    A sink that keeps its own offsets may be ahead of the commit then.

    Args:
        topic: of the partition; its number is the task's.
        base: offset of the batch's first row; None: the sink may hold rows of an uncommitted write.
    """

    topic: str
    at: int
    batch: WrittenBatch
    base: int | None = None

    @classmethod
    def after(cls, before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        # Every attempt at a micro-batch numbers its rows alike.
        base: int | None = at
        if before is not None and (before.topic, before.at) == (partition.topic, at):
            base = before.base if before.batch == batch else None
        return cls(topic=partition.topic, at=at, batch=batch, base=base)


class TaskRecord(Lasting):
    """A task's commits and tokens, in the record that serves as its transactional id.

    Args:
        generation: only its tasks may write the record.
        attempt: 0: the task was only fenced.
        written: the generation that wrote the fields below; None: ``generation``. Fencing keeps it.
        discarded: ids of discarded tokens of the plan's ``stale``.
        segments: names of :class:`Segment` values with earlier commits of its generation, oldest first.
        begun: only for DataFrames; it outlives the generation.
    """

    generation: int
    attempt: int = 0
    written: int | None = None
    entries: tuple[PartitionCommit, ...] = ()
    prepared: tuple[PreparedTokens, ...] = ()
    discarded: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()
    begun: Begun | None = None
    retired: tuple[RetiredTokens, ...] = ()

    @property
    def format(self) -> int:
        # An older sinksdk would take commits in segments for uncommitted.
        return 2 if self.segments else 1

    @property
    def content_generation(self) -> int:
        return self.generation if self.written is None else self.written


class Segment(Value):
    """Commits stored outside a task's record. Immutable; valid while the record names it."""

    entries: tuple[PartitionCommit, ...]


def prepared_tokens(tokens: Mapping[TopicPartition, Iterable[Token]]) -> tuple[PreparedTokens, ...]:
    rows = [
        PreparedTokens(topic=p.topic, partition=p.partition, tokens=tuple(given))
        for p, given in sorted(tokens.items())
    ]
    return tuple(row for row in rows if row.tokens)


def digest(token_id: str) -> str:
    # Ids may be long, so only 72 bits of their hash are kept.
    return base64.urlsafe_b64encode(hashlib.sha256(token_id.encode()).digest()[:9]).decode()


# Limits for the ids of discarded tokens in a plan (60 kB) and of one partition. They are enough to find ids
# that are made from offsets, which the next attempt would use again.
_RETIRED: Final = 4_000
_RETIRED_OF_ONE: Final = (4, 64)


def retired(*sources: Iterable[RetiredTokens]) -> tuple[RetiredTokens, ...]:
    """Merge ids of discarded tokens, earlier sources first; keep the newest ids of each partition."""
    found: dict[TopicPartition, dict[str, None]] = {}
    for row in (row for rows in sources for row in rows):
        known = found.setdefault(row.topic_partition, {})
        for one in row.ids:
            known.pop(one, None)
            known[one] = None
    least, most = _RETIRED_OF_ONE
    share = min(max(_RETIRED // max(len(found), 1), least), most)
    return tuple(
        RetiredTokens(topic=p.topic, partition=p.partition, ids=tuple(known)[-share:])
        for p, known in sorted(found.items())
        if known
    )


def by_partition(rows: Sequence[PreparedTokens]) -> dict[TopicPartition, dict[str, Token]]:
    return {row.topic_partition: {token.id: token for token in row.tokens} for row in rows}
