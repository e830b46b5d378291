"""The interface between the runtime and a source of records."""

from __future__ import annotations

from collections.abc import Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from sinksdk.engine.task_run import Unread
from sinksdk.errors import ConfigException, MissingSourceTopicException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.support.java_regex import JavaRegexError, java_pattern

_ROUNDS: Final = 4  # largest number of queries; several are needed only if topics are replaced during them

BATCH_ROWS: Final = 10_000
BATCH_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Subscription:
    """The topics a connector reads, by name or by a Java expression that matches the whole name."""

    topics: tuple[str, ...] = ()
    regex: str | None = None

    def __post_init__(self) -> None:
        # The configuration checks this too, but a connector's author may override that check.
        if bool(self.topics) == bool(self.regex):
            raise ConfigException("exactly one of 'topics' and 'topics.regex' must be set")
        if self.regex:
            try:
                java_pattern(self.regex)
            except JavaRegexError as error:
                raise ConfigException(
                    f"'topics.regex' is not a valid Java regular expression: {error}"
                ) from error

    def select(self, existing: Iterable[str]) -> frozenset[str]:
        if self.regex:
            return frozenset(filter(java_pattern(self.regex).fullmatch, existing))
        missing = set(self.topics).difference(existing)
        if missing:
            raise MissingSourceTopicException(missing)
        return frozenset(self.topics)

    def covers(self, topic: str) -> bool:
        return bool(java_pattern(self.regex).fullmatch(topic)) if self.regex else topic in self.topics

    def without(self, topics: Container[str]) -> Subscription | None:
        if self.regex:
            return self
        left = tuple(topic for topic in self.topics if topic not in topics)
        return Subscription(left) if left else None


class Partitions(dict[TopicPartition, OffsetRange]):
    """The offsets of each partition that can be read now, and the leader epochs of the ends."""

    def __init__(
        self,
        found: Mapping[TopicPartition, OffsetRange],
        unavailable: Collection[TopicPartition] = (),
        epochs: Mapping[TopicPartition, int] | None = None,
    ) -> None:
        super().__init__(found)
        # Partitions without a leader: they are neither empty nor missing.
        self.unavailable = frozenset(unavailable)
        self.epochs = dict(epochs or {})


class Position(NamedTuple):
    """A committed offset, and the leader epoch of the log up to it."""

    offset: int
    epoch: int


class Source(Protocol):
    """A source of records in topic partitions, whose offsets ascend and may have gaps.

    The driver uses it from several threads.
    """

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """Return the start and end offsets of each partition. Raises MissingSourceTopicException."""
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return ids that distinguish a topic from a later one of the same name."""
        ...

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        """Return the offset from which each log differs after losing records below its position (KIP-320).

        None if the log does not know the epoch.
        """
        ...

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """Return the offset of the first record in each range; the range's end without one.

        A source for which that is expensive returns the ranges' starts.
        """
        ...

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Reader: ...


class Reader(Protocol):
    """Reads ranges in a task. Pickled to executors, without secrets."""

    def of(self, partitions: Collection[TopicPartition]) -> Reader: ...

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],
    ) -> Generator[SinkRecords | Unread | None]:
        """Yield batches by ascending offsets, and an :class:`Unread` for a range that cannot be read.

        None follows at least every 0.1 seconds while no record arrives. ``offset`` is always included.
        """
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The result of one query of the source; ``at`` is a time on a monotonic clock."""

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
    # Ids are requested before and after the offsets: if a topic is deleted and created again in between, the
    # offsets may be those of the old one.
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
        topic: f"topic {topic!r} was deleted and created again several times while its offsets were queried"
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
                raise  # other topics are missing, which another query would not change
            absent.update(dict.fromkeys(error.topics, str(error)))
            left = subscription.without(absent)
    return {}, absent
