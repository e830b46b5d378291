"""What a source of records is to the runtime: partitions with ends, and what reads them in a task."""

from __future__ import annotations

import re
from collections.abc import Collection, Container, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sinksdk.engine.worker import Unread
from sinksdk.errors import ConfigException, MissingSourceTopicException
from sinksdk.records import OffsetRange, SinkRecords, TopicPartition


@dataclass(frozen=True, slots=True)
class Subscription:
    """Which topics a connector reads: named ones, or those whose whole name matches an expression.

    Args:
        topics: names of topics; each must be there.
        regex: an expression in Python's syntax; it may match nothing yet.

    Raises:
        ConfigException: not exactly one of the two is given, or the expression is none.
    """

    topics: tuple[str, ...] = ()
    regex: str | None = None

    def __post_init__(self) -> None:
        if bool(self.topics) == bool(self.regex):
            message = "exactly one of 'topics' and 'topics.regex' must be set"
            raise ConfigException(message)
        if self.regex:
            try:
                re.compile(self.regex)
            except re.error as error:
                raise ConfigException(f"'topics.regex' is no regular expression: {error}") from error

    def select(self, existing: Iterable[str]) -> frozenset[str]:
        """Those of the existing topics that are subscribed to.

        Raises:
            MissingSourceTopicException: named topics do not exist; it names all of them.
        """
        if self.regex:
            return frozenset(topic for topic in existing if re.fullmatch(self.regex, topic))
        missing = set(self.topics).difference(existing)
        if missing:
            raise MissingSourceTopicException(missing)
        return frozenset(self.topics)

    def covers(self, topic: str) -> bool:
        """Whether a topic of that name is subscribed to, be it there or not."""
        return bool(re.fullmatch(self.regex, topic)) if self.regex else topic in self.topics

    def without(self, topics: Container[str]) -> Subscription | None:
        """The same without some of the named topics; None when none is left."""
        if self.regex:
            return self
        left = tuple(topic for topic in self.topics if topic not in topics)
        return Subscription(left) if left else None


class Partitions(dict[TopicPartition, OffsetRange]):
    """What a source holds of each partition, without those that cannot be read for now.

    Args:
        unavailable: partitions that are there and cannot be asked, because they have no leader, say. They
            are neither empty nor missing.
    """

    def __init__(
        self, found: Mapping[TopicPartition, OffsetRange], unavailable: Collection[TopicPartition] = ()
    ) -> None:
        super().__init__(found)
        self.unavailable = frozenset(unavailable)


class Source(Protocol):
    """Where records come from.

    A source keeps records in topic partitions with ascending offsets (gaps are allowed) and can be
    asked from any thread of the driver. It does not remember what was read: the store does.
    """

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """What there is to read now.

        Returns:
            For each partition of the subscribed topics the first offset there is and the offset after
            the last one; equal when it holds nothing. A regex that matches nothing gives an empty dict.

        Raises:
            MissingSourceTopicException: named topics are not there; it names all of them.
            RetriableException: something is not readable yet; look again soon.
            ConnectException: what is there cannot be read; it says where and what to do.
        """
        ...

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """What tells a topic from another one of the same name that came after it.

        Args:
            topics: names, as :meth:`partitions` found them.

        Returns:
            The id of each of these topics that has one; a topic that is gone meanwhile is left out. Empty
            for a source that knows no such ids.

        Raises:
            RetriableException, ConnectException: as :meth:`partitions`.
        """
        ...

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """Offset of the first record in each range; the range's end when it is known to hold none.

        A source that cannot tell without effort answers with the ranges' starts. It may take its time, and
        leave out those that there is not enough of: they are asked about again.

        Raises:
            RetriableException, ConnectException: as :meth:`partitions`.
        """
        ...

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Reader:
        """What tasks read these ranges with.

        Raises:
            OffsetOutOfRangeException: a range reaches beyond what the source holds by now.
            RetriableException, ConnectException: as :meth:`partitions`.
        """
        ...


class Reader(Protocol):
    """Reads ranges in a task: the half of a source that travels to executors, pickled, without secrets."""

    def of(self, partitions: Collection[TopicPartition]) -> Reader:
        """What a task needs that reads nothing but these partitions."""
        ...

    def read(
        self,
        ranges: Mapping[TopicPartition, OffsetRange],
        columns: Collection[str],
        overrides: Mapping[str, str],
    ) -> Generator[SinkRecords | Unread | None]:
        """The records of ranges: one range after the other, in any order of ranges, each by its offsets.

        It ends once every range has been read to its end, whether records are there or only gaps. Closing
        the iterator ends it before.

        Args:
            columns: names of :data:`~sinksdk.records.RECORD_COLUMNS` that are wanted. ``offset`` always
                comes; others may be missing where the source has none.
            overrides: settings of the reading client that the connector has (``consumer.override.*``), as the
                task resolves them.

        Yields:
            Batches of at most some 10,000 records and 4 MB, or one larger record; None at least every
            0.1 seconds while none comes; and of a range that cannot be read to its end, why.

        Raises:
            RetriableException, ConnectException: as :meth:`Source.partitions`.
        """
        ...


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What one look at the source found.

    Args:
        at: when the look began, in seconds on a clock that never jumps.
        partitions: those of the subscribed topics that are there.
        ids: ids of these topics, where the source has any.
        absent: topics subscribed to by name that are not there, each with what the source says of that.
        unavailable: partitions that are there and cannot be asked for now: they have no leader.
    """

    at: float
    partitions: Mapping[TopicPartition, OffsetRange]
    ids: Mapping[str, str] = field(default_factory=dict)
    absent: Mapping[str, str] = field(default_factory=dict)
    unavailable: frozenset[TopicPartition] = frozenset()


def end_offsets(source: Source, subscription: Subscription) -> dict[TopicPartition, int]:
    """Where each partition ends; topics that are not there are left out.

    Raises:
        ConnectException: as :func:`take_snapshot`.
    """
    partitions, _ = _what_is_there(source, subscription)
    return {partition: offsets.end for partition, offsets in partitions.items()}


def take_snapshot(source: Source, subscription: Subscription, at: float) -> Snapshot:
    """Ask a source for everything that is there; topics that are not are left out and named.

    Args:
        source: who is asked.
        subscription: for what.
        at: the moment.

    Raises:
        RetriableException: something is not readable yet.
        ConnectException: what is there cannot be read.
    """
    partitions, absent = _what_is_there(source, subscription)
    left_out = partitions.unavailable if isinstance(partitions, Partitions) else frozenset()
    topics = {p.topic for p in (*partitions, *left_out)}
    ids = source.topic_ids(sorted(topics)) if topics else {}
    return Snapshot(at, partitions, ids, absent, left_out)


def _what_is_there(
    source: Source, subscription: Subscription
) -> tuple[dict[TopicPartition, OffsetRange], dict[str, str]]:
    """Partitions, and what the source said of topics that are not there."""
    absent: dict[str, str] = {}
    left: Subscription | None = subscription
    while left is not None:
        try:
            return source.partitions(left), absent
        except MissingSourceTopicException as error:
            if not any(map(left.covers, error.topics)):
                raise  # about something nobody has asked for: it would be asked the same for ever
            absent.update(dict.fromkeys(error.topics, str(error)))
            left = subscription.without(absent)
    return {}, absent
