"""The values in the store, as typed, frozen models.

Their formats are a contract: a store written by one version is read by the next. Partitions are in lists,
with ``topic`` and ``partition`` as fields, so that any topic name is possible.
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
"""Connect's target states."""

ConnectorKind = Literal["sink", "source", "dataframe"]
"""What writes under a name; it never changes while the name exists."""

Order = Literal["restart", "restart_failed", "rebalance", "flush"]
"""An operator's request of something that happens once."""


def _known(token: object) -> object:
    """Without fields of newer versions: a token is written whole again."""
    return {key: token[key] for key in ("id", "data") if key in token} if isinstance(token, dict) else token


KeptToken = Annotated[Token, BeforeValidator(_known)]
"""A token as the store keeps it."""


class StoreIdentity(Value):
    """Distinguishes the store from an empty one at the same address."""

    id: str


class Orders(Lasting):
    """Number of an operator's requests of each kind; the driver compares it with those it has carried out.

    Args:
        restart: stop the connector and all its tasks, and start them again.
        restart_failed: open failed partitions again, at once and with all their attempts.
        rebalance: close the running generation early.
        flush: commit all records available at this moment, tails included.
    """

    restart: int = 0
    restart_failed: int = 0
    rebalance: int = 0
    flush: int = 0


class ConnectorRecord(Lasting):
    """A connector's configuration and target state, as its operator set them.

    Args:
        config: as written, references unresolved.
        version: counts changes of ``config``.
        incarnation: new each time the name is created.
        claimed: the newest generation whose driver has brought its own configuration.
        deleted: it is being deleted; this record is removed last.
        forced: the deletion drops committed tokens that cannot be published.
        kind: None: an older version has made the record, or where the class cannot be loaded.
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
    """The driver that has claimed a generation."""

    generation: int
    driver: str


class TaskCountRecord(Lasting):
    """The task count record.

    Args:
        claimed: the newest generation; drivers of older ones are fenced.
        planned: the newest generation that has a plan; its tasks are the ones to fence.
        tasks: how many tasks that plan has.
        config_version: of the configuration it was made with.
        transactional_tasks: number of source tasks that may still write with their transactional ids: all of
            them are fenced before others start (KIP-618). It outlives the connector. None: there never were
            any.
        claimed_by: the driver that has claimed ``claimed``, if it is of that generation; else an operator's
            request or an older version has claimed it.
    """

    claimed: int
    planned: int = 0
    tasks: int = 0
    config_version: int = 0
    transactional_tasks: int | None = None
    claimed_by: ClaimedBy | None = None

    @property
    def driver(self) -> str | None:
        """The driver that has claimed the newest generation, where that is known."""
        by = self.claimed_by
        return by.driver if by is not None and by.generation == self.claimed else None


class PartitionCommit(NamedPartition):
    """One partition's commit.

    Args:
        offset: next offset to read.
        publish: tokens committed with it and not published yet.
        generation: that wrote it; of two entries the one of the higher generation counts.
        withdrawn_from: the offset it was at before it was withdrawn to this one, because what it covered
            could never be published; None for every other commit.
        published_to: while ``publish`` is not empty: the offset up to which everything is published. None:
            there was no commit before, or an older version has written this one.
        records: how many records ``generation`` has committed, by all attempts at its task. 0: none, or that
            is not known.
        partly_visible_to: the offset after the last record that is visible above ``offset``, since a commit
            was withdrawn of which a part is; None: none is.
        leader_epoch: of the log when ``offset`` was planned: no record below it has a higher one (KIP-320).
            None: the source has no epochs, an operator has set the offset, or an older version has.
        due: the offset after the last record below ``offset`` that a task has accepted: from there on the
            range had no record, or only bad or filtered ones. None: not known.
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
        """The commit as authors get it."""
        return OffsetAndMetadata(self.offset, self.metadata, self.publish)

    @property
    def visible(self) -> int | None:
        """Everything below this offset is published; None: unknown."""
        return self.published_to if self.publish else self.offset

    def withdrawn_to(self, offset: int, generation: int) -> PartitionCommit:
        """The commit that withdraws this one, in that generation, whatever is visible above it."""
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
        """A commit of that generation, which follows ``before``.

        Args:
            leader_epoch: of the log that was read; where nothing was, that of ``before`` stays.
        """
        ahead = before.partly_visible_to if before else None
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
    """Prepared tokens of one partition that no commit covers."""

    tokens: tuple[KeptToken, ...]


class RetiredTokens(NamedPartition):
    """Ids of one partition's tokens that must not be prepared again.

    Args:
        ids: digests (:func:`digest`), the oldest first.
    """

    ids: tuple[str, ...]


def empty_range(partition: TopicPartition, committed: PartitionCommit | None) -> RangePlan:
    """Nothing is read of the partition: its tokens are published or discarded."""
    at = committed.offset if committed else 0
    return RangePlan.of(partition, at, at)


class TaskPlan(Lasting):
    """One task's share of a generation.

    Args:
        ranges: are read one after the other.
        config: entries that differ from the connector's configuration.
    """

    ranges: tuple[RangePlan, ...]
    config: dict[str, str] = Field(default_factory=dict)


class Closing(Lasting):
    """A request to close a running generation.

    Args:
        timeout: seconds that the tasks have, from when they see it.
        successor: name of the driver that waits to take over; the running one ends after this generation.
        answered: the generation has ended, and its driver has stopped.
        asked: in seconds since the epoch.
    """

    reason: ClosingReason
    timeout: float
    successor: str | None = None
    answered: bool = False
    asked: float | None = None


class Undecided(Lasting):
    """Partitions without a commit whose start the next driver decides.

    Args:
        first: for all, and ``offset.source`` counts too: the connector has never run.
        reset: for all: an operator has reset the offsets.
        partitions: otherwise for these, whose commits an operator has removed. Any other partition without
            a commit was added later, and begins at its first record.
    """

    first: bool = False
    reset: bool = False
    partitions: tuple[NamedPartition, ...] = ()

    def covers(self, partition: TopicPartition) -> bool:
        """Whether the driver decides the start of this partition, if it has no commit."""
        return self.first or self.reset or any(p.topic_partition == partition for p in self.partitions)


class Dropped(Lasting):
    """Commits and ids of topics that no generation reads now, and a later one may read again."""

    committed: tuple[PartitionCommit, ...]
    topic_ids: dict[str, str] = Field(default_factory=dict)


class WrittenBatch(Lasting):
    """The newest micro-batch that a query has committed.

    Args:
        query: id of a streaming query, the same as long as its checkpoint; or of one batch write.
        batch: number of the micro-batch; None: a batch write.
    """

    query: str
    batch: int | None = None

    def __str__(self) -> str:
        if self.batch is None:
            return f"batch write {self.query}"
        return f"micro-batch {self.batch} of query {self.query}"


class FrameState(Lasting):
    """State of a connector that DataFrames are written to (``format("sinksdk")``).

    Args:
        writer: run id of the query that writes; every start of a query has another one.
        is_open: the plan's tasks are those of a DataFrame. Otherwise they only publish and discard.
        written: of each query the newest micro-batch committed, the latest one last.
        superseded: run ids that wrote before, and are fenced; the latest one last.
    """

    writer: str
    is_open: bool = False
    written: tuple[WrittenBatch, ...] = ()
    superseded: tuple[str, ...] = ()


class GenerationPlan(Lasting):
    """The plan of one generation.

    Args:
        committed: every partition's commit at its start.
        stale: tokens that no commit covers, not yet discarded.
        config: the configuration its tasks run with, as written: a fenced driver may still change the
            connector's, but not that of a planned generation.
        topic_ids: id of each topic that was read, as first planned; without topics of a source that has no
            such ids.
        undecided: only in plans written when an operator altered offsets.
        closing: the request to close the running generation, if any.
        dropped: the generation whose driver has moved ``committed`` and ``topic_ids`` of topics that are not
            read, or have not been for many generations, to a separate value (:class:`Dropped`); None: there
            are none.
        retired: ids of discarded tokens, which a frozen task of an earlier generation may discard again.
        frames: None: no DataFrame was ever written to this connector.
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
        """The lowest that no older sinksdk misreads.

        3 with dropped topics, whose commits it would lose; 4 with DataFrames, whose numbers it would lose.
        """
        if self.frames is not None:
            return 4
        return 1 if self.dropped is None else 3


class Begun(Lasting):
    """Who has last begun to write a DataFrame's partition since its last commit.

    A sink that keeps offsets of its own may be ahead of the commit then.

    Args:
        topic: of the partition; its number is the task's.
        at: the partition's commit.
        batch: that has begun.
        base: offset of its first row; None: not known yet, since the sink may have rows of another write that
            was never committed.
    """

    topic: str
    at: int
    batch: WrittenBatch
    base: int | None = None

    @classmethod
    def after(cls, before: Begun | None, partition: TopicPartition, at: int, batch: WrittenBatch) -> Begun:
        """A micro-batch begins, or begins again: every attempt at it numbers its rows alike."""
        base: int | None = at
        if before is not None and (before.topic, before.at) == (partition.topic, at):
            base = before.base if before.batch == batch else None
        return cls(topic=partition.topic, at=at, batch=batch, base=base)


class TaskRecord(Lasting):
    """A task's commits and tokens, in the record that serves as its transactional id.

    Args:
        generation: only its tasks may write the record.
        attempt: which attempt at the task; 0 when it was only fenced.
        written: the generation whose task wrote the fields below; fencing does not change them. None:
            ``generation``.
        prepared: tokens that no commit covers.
        discarded: ids of tokens of the plan's ``stale`` that are discarded.
        segments: names of the :class:`Segment` values with further commits of its generation, oldest first;
            of two commits of one partition the later one counts, and those in ``entries`` are the latest.
        begun: only where DataFrames are written; it outlives the generation.
        retired: ids of tokens that were discarded in this generation.
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
        """2 with segments: an older sinksdk would take their commits for uncommitted."""
        return 2 if self.segments else 1

    @property
    def content_generation(self) -> int:
        """``written``, resolved."""
        return self.generation if self.written is None else self.written


class Segment(Value):
    """Commits stored outside a task's record. Immutable; valid only while the record names it."""

    entries: tuple[PartitionCommit, ...]


def prepared_tokens(tokens: Mapping[TopicPartition, Iterable[Token]]) -> tuple[PreparedTokens, ...]:
    """Tokens in the store's form; partitions without any are left out."""
    rows = [
        PreparedTokens(topic=p.topic, partition=p.partition, tokens=tuple(given))
        for p, given in sorted(tokens.items())
    ]
    return tuple(row for row in rows if row.tokens)


def digest(token_id: str) -> str:
    """The form in which a discarded token's id is kept: 72 bits of its hash, as ids may be long."""
    return base64.urlsafe_b64encode(hashlib.sha256(token_id.encode()).digest()[:9]).decode()


_RETIRED: Final = 4_000
"""Ids of discarded tokens that a plan keeps, for all partitions together: about 60 kB."""
_RETIRED_OF_ONE: Final = (4, 64)
"""Fewest and most ids of one partition among them."""


def retired(*sources: Iterable[RetiredTokens]) -> tuple[RetiredTokens, ...]:
    """Ids of discarded tokens by partition, in the store's form: the newest ones of each.

    Args:
        sources: the earlier ones first.
    """
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
    """Tokens by partition and id."""
    return {row.topic_partition: {token.id: token for token in row.tokens} for row in rows}
