"""The runtime's interface to a source of records: partitions with end offsets, and readers for tasks."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConfigException, MissingSourceTopicException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.support.java_regex import JavaRegexError, java_pattern

_ROUNDS: Final = 4
"""Most queries of offsets for a snapshot: two where a topic is new, or was deleted meanwhile."""

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""Maximum of a reader's batch: whichever is reached first."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics a connector reads: named ones, or those whose whole name matches an expression.

    Args:
        topics: each must exist.
        regex: in Java's syntax, as in Kafka Connect; it may match nothing yet.

    Raises:
        ConfigException: not exactly one of the two is given, or the expression is invalid.
    """

    topics: tuple[str, ...] = ()
    regex: str | None = None

    def __post_init__(self) -> None:
        # Checked with the configuration, too; but an author may override that.
        if bool(self.topics) == bool(self.regex):
            message = "exactly one of 'topics' and 'topics.regex' must be set"
            raise ConfigException(message)
        if self.regex:
            try:
                java_pattern(self.regex)
            except JavaRegexError as error:
                raise ConfigException(
                    f"'topics.regex' is no regular expression of Java's: {error}"
                ) from error

    def select(self, existing: Iterable[str]) -> frozenset[str]:
        """Those of the existing topics that are subscribed to.

        Raises:
            MissingSourceTopicException: named topics do not exist; it names all of them.
        """
        if self.regex:
            return frozenset(filter(java_pattern(self.regex).fullmatch, existing))
        missing = set(self.topics).difference(existing)
        if missing:
            raise MissingSourceTopicException(missing)
        return frozenset(self.topics)

    def covers(self, topic: str) -> bool:
        """Whether a topic of that name is subscribed to, whether it exists or not."""
        return bool(java_pattern(self.regex).fullmatch(topic)) if self.regex else topic in self.topics

    def without(self, topics: Container[str]) -> Subscription | None:
        """The same without some of the named topics; None when none is left."""
        if self.regex:
            return self
        left = tuple(topic for topic in self.topics if topic not in topics)
        return Subscription(left) if left else None


class Partitions(dict[TopicPartition, OffsetRange]):
    """The offsets of each partition that can be read now.

    Args:
        unavailable: partitions that exist and cannot be queried, such as those without a leader: neither
            empty nor missing.
        epochs: the leader epoch of each partition's log, as of the same response as its end: no record before
            the end has a higher one. Without partitions of a source that has no such epochs.
    """

    def __init__(
        self,
        found: Mapping[TopicPartition, OffsetRange],
        unavailable: Collection[TopicPartition] = (),
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        super().__init__(found)
        self.unavailable = frozenset(unavailable)
        self.epochs = dict(epochs or {})


class Position(NamedTuple):
    """A commit, and the leader epoch of the log that was read up to it."""

    offset: int
    epoch: int


class Source(Protocol):
    """A source of records.

    A source holds records in topic partitions with ascending offsets (gaps are allowed). Thread-safe in the
    driver. It does not keep the read offsets: the store does. Methods may raise:
        RetriableException: something is not readable yet.
        ConnectException: the source cannot be read; it says where and what to do.
    """

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """The first offset and the offset after the last one of each partition of the subscribed topics.

        They are equal if it holds nothing. A regex without a match returns an empty dict.

        Raises:
            MissingSourceTopicException: named topics do not exist; it names all of them.
        """
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Ids that distinguish a topic from a later one of the same name.

        Without topics deleted meanwhile; empty for a source without such ids.
        """
        ...

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        """Partitions whose log has lost records below these positions (KIP-320).

        That is the offset from which the log has other records than those that were read; None: it does not
        know the position's epoch at all. Only called for sources that have epochs.

        Raises:
            RetriableException: of a partition that is not known yet.
        """
        ...

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """Offset of the first record in each range; the range's end when it is known to hold none.

        A source for which that is expensive returns the ranges' starts. It may be slow, and leave out ranges
        after a time-out: the next call includes them again.
        """
        ...

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Reader:
        """A reader of these ranges, for tasks.

        Raises:
            OffsetOutOfRangeException: a range reaches beyond what the source holds by now.
        """
        ...


class Reader(Protocol):
    """Reads ranges in a task: the part of a source that is pickled to executors, without secrets."""

    def of(self, partitions: Collection[TopicPartition]) -> Reader:
        """The reader of a task that reads only these partitions."""
        ...

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],
    ) -> Generator[SinkRecords | Unread | None]:
        """Read ranges, one after the other in any order, each by ascending offsets.

        It ends once every range has been read to its end, which may be a gap. Raises as :class:`Source`.

        Args:
            columns: of :data:`~sinksdk.records.RECORD_COLUMNS`. ``offset`` always comes; others may be
                missing where the source has none.
            overrides: settings of the reading client (``consumer.override.*``), resolved by the task.

        Yields:
            Batches of at most :data:`BATCH_ROWS` and :data:`BATCH_BYTES`, or one larger record; None at least
            every 0.1 seconds while none comes; and an :class:`Unread` for a range that cannot be read to its
            end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one query of the source.

    Args:
        at: start of the query, in seconds on a monotonic clock.
        ids: topic ids, where the source has any.
        absent: topics subscribed to by name that do not exist, each with the source's message.
        unavailable, epochs: as of :class:`Partitions`.
    """

    at: float
    partitions: Mapping[TopicPartition, OffsetRange]
    ids: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    unavailable: frozenset[TopicPartition] = frozenset()
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def end_offsets(source: Source, subscription: Subscription) -> dict[TopicPartition, int]:
    """End offset of each partition, without topics that do not exist. Raises as :class:`Source`."""
    partitions, _ = _what_is_there(source, subscription)
    return {partition: offsets.end for partition, offsets in partitions.items()}


def take_snapshot(
    source: Source, subscription: Subscription, at: float, known: Mapping[str, str] | None = None
) -> Snapshot:
    """Query a source for all partitions; ``absent`` names missing topics. Raises as :class:`Source`.

    A topic's id is requested before its offsets and after them. Otherwise the offsets of a topic that is
    deleted and created again in between would be taken for the new one's.

    Args:
        known: topic ids of an earlier snapshot, which need not be requested again before.
    """
    before = dict(known or {})
    if unknown := sorted(set(subscription.topics) - before.keys()):
        before |= source.topic_ids(unknown)
    for _ in range(_ROUNDS):
        partitions, absent = _what_is_there(source, subscription)
        left_out = partitions.unavailable if isinstance(partitions, Partitions) else frozenset()
        topics = {p.topic for p in (*partitions, *left_out)}
        ids = source.topic_ids(sorted(topics)) if topics else {}
        changed = {topic for topic in topics if ids.get(topic) != before.get(topic)}
        epochs = partitions.epochs if isinstance(partitions, Partitions) else {}
        if not changed:
            return Snapshot(at, partitions, ids, absent, left_out, epochs)
        before |= ids
        for topic in changed - ids.keys():
            before.pop(topic, None)
    absent |= {topic: f"topic {topic!r} is deleted and created again all the time" for topic in changed}
    return Snapshot(
        at,
        {p: offsets for p, offsets in partitions.items() if p.topic not in changed},
        {topic: known_id for topic, known_id in ids.items() if topic not in changed},
        absent,
        frozenset(p for p in left_out if p.topic not in changed),
        epochs,
    )


def _what_is_there(
    source: Source, subscription: Subscription
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, str]]:
    """Partitions, and the source's message of each topic that does not exist."""
    absent: dict[str, str] = {}
    left: Subscription | None = subscription
    while left is not None:
        try:
            return source.partitions(left), absent
        except MissingSourceTopicException as error:
            if not any(map(left.covers, error.topics)):
                raise  # about other topics: a repeated query would fail for ever
            absent.update(dict.fromkeys(error.topics, str(error)))
            left = subscription.without(absent)
    return {}, absent
