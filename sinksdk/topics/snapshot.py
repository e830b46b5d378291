"""What a source holds at one moment, as its subscriber sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sinksdk.errors import MissingSourceTopicException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions, Source, Subscription


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
