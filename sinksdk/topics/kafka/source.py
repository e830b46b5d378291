"""Kafka topics as a source of records."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing, suppress
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.errors import MissingSourceTopicException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions, Position, Subscription
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import Cluster, bystander
from sinksdk.topics.kafka.reader import KafkaReader
from sinksdk.topics.kafka.truncation import truncated_logs

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
            message = consumer.poll(
                max(last_response + _SILENCE - clock(), 0.0)
            )  # a negative time-out would wait without limit
            if message is None or message.topic() is None or message.partition() is None:
                continue
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            first = None if partition in found else _first_offset(message, ranges[partition])
            if first is None:
                continue
            found[partition], last_response = first, clock()
            if message.error() is None:
                with suppress(KafkaException):  # if pausing fails, a few records are fetched without use
                    consumer.pause([KafkaPartition(*partition)])
    return found


def _first_offset(message: Message, offsets: OffsetRange) -> int | None:
    error = message.error()
    if error is None:
        return min(int(message.offset() or 0), offsets.end)
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return offsets.end
    return None if error.retriable() else offsets.start  # librdkafka retries the retriable errors itself


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
