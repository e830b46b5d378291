"""The values the store keeps, as typed, frozen models.

Their formats are a contract: a store written by one version is read by the next. Partitions stand in
lists, with ``topic`` and ``partition`` of their own, so that any topic name will do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from sinksdk.context import ClosingReason
from sinksdk.records import OffsetAndMetadata, OffsetRange, Token, TopicPartition
from sinksdk.support.retry import Retry

TargetState = Literal["RUNNING", "PAUSED", "STOPPED"]
"""Connect's target states."""


def _known(token: object) -> object:
    """What this version knows of a token: an id and the author's data, to which a version adds nothing."""
    return {key: token[key] for key in ("id", "data") if key in token} if isinstance(token, dict) else token


KeptToken = Annotated[Token, BeforeValidator(_known)]
"""A token as the store keeps it."""


class Value(BaseModel):
    """Base of everything the store keeps. Unknown fields are kept out, missing ones are errors."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @property
    def format(self) -> int:
        """Version of its format. A higher one keeps out every sinksdk that would read it wrongly."""
        return 1

    def as_json(self) -> dict[str, Any]:
        """The value as the store writes it."""
        return self.model_dump(mode="json")


class Lasting(Value):
    """Base of what correctness stands on, and what several versions may change one after the other.

    Fields that this version does not know stay as they are: whoever fences, claims or closes what a newer
    version has written takes nothing from it.
    """

    model_config = ConfigDict(extra="allow")


class StoreIdentity(Value):
    """Tells this store from an empty one that happens to have its address."""

    id: str


class Orders(Lasting):
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


class ConnectorRecord(Lasting):
    """A connector as an operator wants it.

    Args:
        config: the configuration as written, references unresolved.
        version: counts its changes.
        incarnation: new each time the name is created.
        claimed: the newest generation whose driver has brought its own configuration.
        deleted: being deleted: outside resources are cleaned up before this record goes.
        forced: the deletion gives up what is committed and cannot be published.
    """

    config: dict[str, str]
    version: int = 1
    incarnation: str
    target_state: TargetState = "RUNNING"
    orders: Orders = Orders()
    claimed: int = 0
    deleted: bool = False
    forced: bool = False


class TaskCountRecord(Lasting):
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


class Entry(Lasting):
    """One partition's commit.

    Args:
        offset: next offset to read.
        metadata: the author's text.
        publish: tokens committed with it and not published yet.
        generation: the generation that wrote it; of two entries the higher one holds.
        withdrawn_from: the offset it was at before it was withdrawn to this one, because what it covered
            could never be published; None for every other commit.
        published_to: while ``publish`` waits: the offset of the commit before, of which everything is
            published. None: there was none, or a version that did not keep it has written this one.
    """

    topic: str
    partition: int
    offset: int
    metadata: str = ""
    publish: tuple[KeptToken, ...] = ()
    generation: int
    withdrawn_from: int | None = None
    published_to: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose commit this is."""
        return TopicPartition(self.topic, self.partition)

    def committed(self) -> OffsetAndMetadata:
        """The entry as authors see it."""
        return OffsetAndMetadata(self.offset, self.metadata, self.publish)

    @property
    def visible(self) -> int | None:
        """Up to which offset everything is published; None where that is not known."""
        return self.published_to if self.publish else self.offset

    def withdrawn_to(self, offset: int, generation: int) -> Entry:
        """The same, gone back to this offset in that generation, with nothing left to publish."""
        changed = {
            "offset": offset,
            "publish": (),
            "published_to": None,
            "generation": generation,
            "withdrawn_from": self.offset,
        }
        return self.model_copy(update=changed)

    @classmethod
    def of(
        cls,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        generation: int,
        before: Entry | None = None,
    ) -> Entry:
        """A commit made in that generation, after the one before it."""
        return cls(
            topic=partition.topic,
            partition=partition.partition,
            offset=offset.offset,
            metadata=offset.metadata,
            publish=offset.tokens,
            generation=generation,
            published_to=before.visible if before and offset.tokens else None,
        )


class Noted(Lasting):
    """Tokens of one partition that no commit covers."""

    topic: str
    partition: int
    tokens: tuple[KeptToken, ...]

    @property
    def topic_partition(self) -> TopicPartition:
        """Whose tokens these are."""
        return TopicPartition(self.topic, self.partition)


class PlannedRange(Lasting):
    """Offsets [start, end) of one partition, the most its generation will read of it.

    Args:
        due: the end is closing: what is left over is flushed and committed too.
        records: its generation ends it after so many records, if it has more. None: only at its end.
        retry: what earlier generations have left to this one to try again.
    """

    topic: str
    partition: int
    start: int
    end: int
    due: bool = False
    records: int | None = None
    retry: Retry | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        """What is read."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> OffsetRange:
        """What of it."""
        return OffsetRange(self.start, self.end)


class TaskPlan(Lasting):
    """One task's share of a generation.

    Args:
        ranges: read one after the other.
        config: entries in which the task's configuration differs from the connector's.
    """

    ranges: tuple[PlannedRange, ...]
    config: dict[str, str] = Field(default_factory=dict)


class Closing(Lasting):
    """A running generation shall close.

    Args:
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


class NamedPartition(Lasting):
    """A partition, where nothing more is said of it."""

    topic: str
    partition: int

    @property
    def topic_partition(self) -> TopicPartition:
        """Which one."""
        return TopicPartition(self.topic, self.partition)


class Undecided(Lasting):
    """The next driver decides where partitions without a commit begin; no commit says it.

    Args:
        first: the connector has never run: it decides for all, also by what ``offset.source`` says.
        reset: everything was taken back by hand: it decides for all.
        partitions: otherwise for these, whose commits were taken back. Any other partition without a
            commit came later, and begins at its first record.
    """

    first: bool = False
    reset: bool = False
    partitions: tuple[NamedPartition, ...] = ()

    def covers(self, partition: TopicPartition) -> bool:
        """Whether it is decided where this partition begins, if nothing is committed of it."""
        return self.first or self.reset or any(p.topic_partition == partition for p in self.partitions)


class Dropped(Lasting):
    """Commits and ids of topics that a connector is not subscribed to any more; it may be again."""

    committed: tuple[Entry, ...]
    topic_ids: dict[str, str] = Field(default_factory=dict)


class GenerationPlan(Lasting):
    """The plan of one generation.

    Args:
        committed: every partition's commit at its start.
        stale: tokens that no commit covers, not yet discarded.
        config: the configuration its tasks run with, as written: a driver that was overtaken may still
            change the connector's, but never what a planned generation does.
        topic_ids: id of each topic of which something was read, as it was when it was first planned;
            topics of a source without such ids are not in it.
        undecided: where partitions without a commit begin, if that is not decided. Only offsets altered by
            hand leave it so; None in every plan that a driver has made, and in those of older versions.
        closing: set while it runs, once it shall close.
        dropped: the generation whose driver has set apart what belongs to ``committed`` and ``topic_ids`` of
            topics that are not read any more; None: there are none.
    """

    generation: int
    config_version: int
    tasks: tuple[TaskPlan, ...]
    committed: tuple[Entry, ...]
    stale: tuple[Noted, ...] = ()
    config: dict[str, str] = Field(default_factory=dict)
    topic_ids: dict[str, str] = Field(default_factory=dict)
    undecided: Undecided | None = None
    closing: Closing | None = None
    dropped: int | None = None

    @property
    def format(self) -> int:
        """3 with dropped topics: who does not know of them would forget what is committed of them."""
        return 1 if self.dropped is None else 3


class TaskRecord(Lasting):
    """What one task has written: the record that plays the part of a transactional id.

    Args:
        generation: who may write it: tasks of this generation only.
        attempt: which attempt at the task; 0 when it was only fenced.
        written: the generation whose task wrote what stands below; fencing leaves it as it is. None:
            ``generation``.
        prepared: tokens noted that no commit covers.
        discarded: ids of tokens of the plan's ``stale`` that are discarded.
        segments: names of the values that hold further commits of its generation, oldest first; of two
            commits of one partition the later one holds, and those in ``entries`` are the latest.
    """

    generation: int
    attempt: int = 0
    written: int | None = None
    entries: tuple[Entry, ...] = ()
    prepared: tuple[Noted, ...] = ()
    discarded: tuple[str, ...] = ()
    segments: tuple[str, ...] = ()

    @property
    def format(self) -> int:
        """2 with segments: who does not know of them would take what is in them for uncommitted."""
        return 2 if self.segments else 1

    @property
    def content_generation(self) -> int:
        """Which generation's task wrote the entries and tokens."""
        return self.generation if self.written is None else self.written


class Segment(Value):
    """Commits of one task that are set apart from its record; never changed.

    Only the record that names it makes it count: that is where tasks are fenced.
    """

    entries: tuple[Entry, ...]


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
