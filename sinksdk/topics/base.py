"""The runtime's interface to a source of records: partitions with their offsets, and readers for tasks."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConfigException, MissingSourceTopicException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.support.java_regex import JavaRegexError, java_pattern

_ROUNDS: Final = 4  # queries of offsets for a snapshot, at most: more only if topics are replaced meanwhile

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024
"""A reader's batch ends at either maximum."""


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
        # The configuration checks this, too; but an author of a connector may override that check.
        if bool(self.topics) == bool(self.regex):
            message = "exactly one of 'topics' and 'topics.regex' must be set"
            raise ConfigException(message)
        if self.regex:
            try:
                java_pattern(self.regex)
            except JavaRegexError as error:
                raise ConfigException(
                    f"'topics.regex' is not a regular expression of Java: {error}"
                ) from error

    def select(self, existing: Iterable[str]) -> frozenset[str]:
        """Select the subscribed topics among the existing ones.

        Raises:
            MissingSourceTopicException: named topics do not exist; the exception lists all of them.
        """
        if self.regex:
            return frozenset(filter(java_pattern(self.regex).fullmatch, existing))
        missing = set(self.topics).difference(existing)
        if missing:
            raise MissingSourceTopicException(missing)
        return frozenset(self.topics)

    def covers(self, topic: str) -> bool:
        """Whether a topic of that name is subscribed to, even if it does not exist."""
        return bool(java_pattern(self.regex).fullmatch(topic)) if self.regex else topic in self.topics

    def without(self, topics: Container[str]) -> Subscription | None:
        """Remove named topics; None if no topic remains."""
        if self.regex:
            return self
        left = tuple(topic for topic in self.topics if topic not in topics)
        return Subscription(left) if left else None


class Partitions(dict[TopicPartition, OffsetRange]):
    """The offsets of each partition that can be read now.

    Args:
        unavailable: partitions that exist and cannot be queried, such as those without a leader: neither
            empty nor missing.
        epochs: the leader epoch of each partition's log, from the same response as its end: no record before
            the end has a higher one. Empty for a source without leader epochs.
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
    """A committed offset, and the leader epoch of the log that was read up to it."""

    offset: int
    epoch: int


class Source(Protocol):
    """A source of records in topic partitions, whose offsets ascend and may have gaps.

    The driver uses it from several threads. The store, not the source, keeps the offsets that were read.
    Methods may raise:
        RetriableException: something is not readable yet.
        ConnectException: the source cannot be read; the message says where and what to do.
    """

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """The first offset and the offset after the last one of each partition of the subscribed topics.

        Both are equal if the partition is empty. A regex without a match returns an empty dict.

        Raises:
            MissingSourceTopicException: named topics do not exist; the exception lists all of them.
        """
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Ids that distinguish a topic from a later one of the same name.

        Topics that were deleted meanwhile are left out; a source without such ids returns an empty mapping.
        """
        ...

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        """Partitions whose log has lost records below these positions (KIP-320).

        The value is the offset from which the log differs from what was read, or None if the log does not
        know the position's epoch at all. The runtime calls this only for sources that have epochs.

        Raises:
            RetriableException: the state of a partition is not known yet.
        """
        ...

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """Offset of the first record in each range; the range's end when the range is known to hold none.

        A source for which that is expensive returns the ranges' starts. The call may be slow, and leave out
        ranges after a time-out: the next call includes them again.
        """
        ...

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Reader:
        """Create a reader of these ranges for tasks.

        Raises:
            OffsetOutOfRangeException: the source no longer holds all of a range.
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
        """Read ranges one after the other, in any order, each by ascending offsets.

        The generator ends once every range has been read to its end, which may be a gap. Raises as
        :class:`Source`.

        Args:
            columns: of :data:`~sinksdk.records.RECORD_COLUMNS`. ``offset`` is always included; others may be
                missing where the source does not have them.
            overrides: settings of the reading client (``consumer.override.*``), resolved by the task.

        Yields:
            Batches of at most :data:`BATCH_ROWS` and :data:`BATCH_BYTES`, or one larger record; None at least
            every 0.1 seconds while no record arrives; and an :class:`Unread` for a range that cannot be read
            to its end.
        """
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one query of the source.

    Args:
        at: start of the query, in seconds on a monotonic clock.
        ids: topic ids, where the source has any.
        absent: topics subscribed to by name that do not exist, each with the source's message.
        unavailable, epochs: see :class:`Partitions`.
    """

    at: float
    partitions: Mapping[TopicPartition, OffsetRange]
    ids: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    unavailable: frozenset[TopicPartition] = frozenset()
    epochs: Mapping[TopicPartition, int] = field(default_factory=dict)


def end_offsets(source: Source, subscription: Subscription) -> dict[TopicPartition, int]:
    partitions, _ = _partitions_and_missing(source, subscription)
    return {partition: offsets.end for partition, offsets in partitions.items()}


def take_snapshot(
    source: Source, subscription: Subscription, at: float, known: Mapping[str, str] | None = None
) -> Snapshot:
    """Query a source for all partitions; ``absent`` names missing topics. Raises as :class:`Source`.

    Topic ids are requested before and after the offsets. Otherwise the offsets of a topic that is deleted and
    created again in between would be assigned to the new topic.

    Args:
        known: topic ids of an earlier snapshot, which are not requested before the offsets again.
    """
    before = dict(known or {})
    if unknown := sorted(set(subscription.topics) - before.keys()):
        before |= source.topic_ids(unknown)
    for _ in range(_ROUNDS):
        partitions, absent = _partitions_and_missing(source, subscription)
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
    absent |= {
        topic: f"topic {topic!r} was deleted and created again repeatedly while it was queried"
        for topic in changed
    }
    return Snapshot(
        at,
        {p: offsets for p, offsets in partitions.items() if p.topic not in changed},
        {topic: known_id for topic, known_id in ids.items() if topic not in changed},
        absent,
        frozenset(p for p in left_out if p.topic not in changed),
        epochs,
    )


def _partitions_and_missing(
    source: Source, subscription: Subscription
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, str]]:
    absent: dict[str, str] = {}
    left: Subscription | None = subscription
    while left is not None:
        try:
            return source.partitions(left), absent
        except MissingSourceTopicException as error:
            if not any(map(left.covers, error.topics)):
                raise  # other topics are missing: repeating the query would not help
            absent.update(dict.fromkeys(error.topics, str(error)))
            left = subscription.without(absent)
    return {}, absent
