"""Kafka topics as a source of records."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.errors import MissingSourceTopicException, RetriableException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions, Position, Subscription
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import Cluster, bystander, translating
from sinksdk.topics.kafka.reader import KafkaReader

_READING: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "fetch.message.max.bytes": 1024,  # bytes: enough for one record, or the first of a batch
    "fetch.min.bytes": 1,  # overrides the connector's setting, whose readers may wait for more
    "fetch.wait.max.ms": 500,
    "queued.min.messages": 1,  # one record of each partition is enough
}
_SILENCE: Final = 5.0  # seconds without a response after which other partitions are assumed to have records
# Seconds for the whole query; the next call repeats it for partitions without a response.
_LONGEST: Final = 30.0
_CHECKING: Final[Mapping[str, Any]] = {
    "enable.partition.eof": True,
    "auto.offset.reset": "error",  # otherwise librdkafka silently continues at the truncated end
    # Bytes: one record, or the first of a batch, shows that nothing was truncated.
    "fetch.message.max.bytes": 1024,
    "queued.min.messages": 1,
}
_LONGEST_CHECK: Final = 15.0  # seconds
_POLL: Final = 0.5  # seconds
# librdkafka reports the end offset of an epoch only in the text of its error.
_TRUNCATED: Final = re.compile(r"broker end offset is (-?\d+)")


def first_offsets(
    properties: Mapping[str, str],
    ranges: Mapping[TopicPartition, OffsetRange],
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, int]:
    """Return the offset of the first record in each range, or the range's end if it holds no record.

    If a broker stays silent, return the start of its ranges, or leave them out after 30 s.
    """
    found: dict[TopicPartition, int] = {}
    with closing(bystander(properties, "sinksdk-probe", _READING)) as consumer:
        # One consumer fetches all partitions together: each broker gets one request.
        consumer.assign(
            [KafkaPartition(p.topic, p.partition, offsets.start) for p, offsets in ranges.items()]
        )
        last_response = begun = clock()
        while len(found) < len(ranges) and clock() - begun < _LONGEST:
            if clock() - last_response >= _SILENCE:
                return {partition: offsets.start for partition, offsets in ranges.items()} | found
            # A negative time-out would wait without limit.
            if (response := _polled(consumer, max(last_response + _SILENCE - clock(), 0.0))) is None:
                continue
            partition, message = response
            first = None if partition in found else _first_offset(message, ranges[partition])
            if first is None:
                continue
            found[partition], last_response = first, clock()
            if message.error() is None:
                _pause(consumer, partition)
    return found


def _polled(consumer: Consumer, timeout: float) -> tuple[TopicPartition, Message] | None:
    message = consumer.poll(timeout)
    if message is None or message.topic() is None or message.partition() is None:
        return None
    return TopicPartition(str(message.topic()), int(message.partition() or 0)), message


def _pause(consumer: Consumer, partition: TopicPartition) -> None:
    with suppress(KafkaException):  # if pausing fails, a few records are fetched without use
        consumer.pause([KafkaPartition(*partition)])


def _first_offset(message: Message, offsets: OffsetRange) -> int | None:
    error = message.error()
    if error is None:
        return min(int(message.offset() or 0), offsets.end)
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return offsets.end
    return None if error.retriable() else offsets.start  # librdkafka retries the retriable errors itself


def truncated_logs(
    properties: Mapping[str, str],
    positions: Mapping[TopicPartition, Position],
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, int | None]:
    """Return the offsets from which logs have lost records that were read (KIP-320)."""
    found: dict[TopicPartition, int | None] = {}
    waiting = {p: at for p, at in positions.items() if at.offset > 0}  # librdkafka does not check offset 0
    deadline = clock() + _LONGEST_CHECK
    with closing(bystander(properties, "sinksdk-epochs", _CHECKING)) as consumer:
        consumer.assign([KafkaPartition(*p, at.offset) for p, at in waiting.items()])
        for partition, at in waiting.items():
            # librdkafka compares a position with the log (OffsetsForLeaderEpoch) only in a seek with an
            # epoch.
            _seek(consumer, partition, at, properties["bootstrap.servers"])
        while waiting:
            if clock() >= deadline:
                raise RetriableException(
                    f"the Kafka cluster at {properties['bootstrap.servers']} did not confirm within "
                    f"{_LONGEST_CHECK:g} s that the logs of {', '.join(map(str, waiting))} still contain the "
                    f"records that were read"
                )
            if (response := _polled(consumer, _POLL)) is None:
                continue
            partition, message = response
            if partition not in waiting or ((error := message.error()) is not None and error.retriable()):
                continue
            with translating(properties["bootstrap.servers"], f"the leader epochs of {partition}"):
                is_truncated, end = _truncation(message)
            if is_truncated:
                found[partition] = end
            del waiting[partition]
            _pause(consumer, partition)
    return found


def _seek(consumer: Consumer, partition: TopicPartition, at: Position, bootstrap: str) -> None:
    with translating(bootstrap, f"the leader epochs of {partition}"):
        consumer.seek(KafkaPartition(*partition, at.offset, leader_epoch=at.epoch))


def _truncation(message: Message) -> tuple[bool, int | None]:
    """Return whether the log was truncated, and where; None if the log does not know the epoch."""
    error = message.error()
    if error is None or error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return False, None
    match = _TRUNCATED.search(error.str())
    if match is None:
        raise KafkaException(error)
    end = int(match[1])
    return True, None if end < 0 else end


class KafkaSource:
    def __init__(self, client: KafkaClient, overrides: Mapping[str, str] | None = None) -> None:
        self._client = client
        self.cluster = Cluster({"isolation.level": "read_committed", **client.librdkafka(overrides)})

    def partitions(self, subscription: Subscription) -> Partitions:
        topics = self._topics(subscription)
        return self.cluster.available(partition for found in topics.values() for partition in found)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return self.cluster.topic_ids(topics)

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        return truncated_logs(self.cluster.properties, positions)

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        # One record of each range is read: compacted records and transaction markers leave gaps.
        return first_offsets(self.cluster.properties, ranges)

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> KafkaReader:  # noqa: ARG002 - one reader serves all
        return KafkaReader(self._client)

    def _topics(self, subscription: Subscription) -> dict[str, list[TopicPartition]]:
        if subscription.regex:
            return self.cluster.partitions(subscription.select(self.cluster.topic_names()))
        found = self.cluster.partitions(subscription.topics)
        missing = sorted(set(subscription.topics) - found.keys())
        if missing:
            names = ", ".join(map(repr, missing))
            raise MissingSourceTopicException(
                missing,
                f"the Kafka cluster at {self.cluster.bootstrap} has no topic {names}: create it, or remove "
                f"it from the connector's 'topics'",
            )
        return found
