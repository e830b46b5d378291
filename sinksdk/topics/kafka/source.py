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
    "fetch.message.max.bytes": 1024,  # one record, or the first of a batch
    "fetch.min.bytes": 1,  # whatever the reader waits for
    "fetch.wait.max.ms": 500,
    "queued.min.messages": 1,  # of each partition one is enough
}
_SILENCE: Final = 5.0  # seconds without any answer; then the other partitions are taken to have records
_LONGEST: Final = 30.0  # seconds for all; partitions without an answer are asked about the next time


def first_offsets(
    properties: Mapping[str, str],
    ranges: Mapping[TopicPartition, OffsetRange],
    clock: Callable[[], float] = time.monotonic,
) -> dict[TopicPartition, int]:
    """Offset of the first record in each range; its end where it has none, its start where no broker answers.

    One consumer asks about all partitions together: each broker gets one request. Partitions for which there
    was no time are left out.

    Args:
        clock: seconds on a clock that never jumps.
    """
    found: dict[TopicPartition, int] = {}
    with closing(bystander(properties, "sinksdk-probe", _READING)) as consumer:
        consumer.assign([KafkaPartition(p.topic, p.partition, asked.start) for p, asked in ranges.items()])
        heard = begun = clock()
        while len(found) < len(ranges) and clock() - begun < _LONGEST:
            if clock() - heard >= _SILENCE:
                return {partition: asked.start for partition, asked in ranges.items()} | found
            message = consumer.poll(max(heard + _SILENCE - clock(), 0.0))  # below 0 it would wait for ever
            if message is None or message.topic() is None or message.partition() is None:
                continue
            partition = TopicPartition(str(message.topic()), int(message.partition() or 0))
            answer = None if partition in found else _answer(message, ranges[partition])
            if answer is None:
                continue
            found[partition], heard = answer, clock()
            if message.error() is None:
                with suppress(KafkaException):  # then a few more of its records are fetched in vain
                    consumer.pause([KafkaPartition(*partition)])
    return found


def _answer(message: Message, asked: OffsetRange) -> int | None:
    """None: the client asks again."""
    error = message.error()
    if error is None:
        return min(int(message.offset() or 0), asked.end)
    if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - librdkafka's name for it
        return asked.end
    return None if error.retriable() else asked.start


_ISOLATION: Final = "isolation.level"


class KafkaSource:
    """Topics of one Kafka cluster (:class:`~sinksdk.topics.base.Source`), read up to the last stable offset.

    Args:
        overrides: properties of the reading clients, without ``consumer.override.``; they may override
            ``isolation.level``.

    Raises:
        ConfigException: the clients do not accept the properties.
    """

    def __init__(self, client: KafkaClient, overrides: Mapping[str, str] | None = None) -> None:
        self._client = client
        self.cluster = Cluster({_ISOLATION: "read_committed", **client.librdkafka(overrides)})

    def partitions(self, subscription: Subscription) -> Partitions:
        """Kafka's own topics match no regex."""
        topics = self._topics(subscription)
        return self.cluster.available(partition for found in topics.values() for partition in found)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return self.cluster.topic_ids(topics)

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> Mapping[TopicPartition, int | None]:
        return truncated_logs(self.cluster.properties, positions)

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """Reads one record of each: behind compacted records and transaction markers there may be none."""
        return first_offsets(self.cluster.properties, ranges)

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> KafkaReader:  # noqa: ARG002 - whichever they are
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
                f"the Kafka cluster at {self.cluster.bootstrap} has no topic {names}: create it, or take it "
                f"out of the connector's 'topics'",
            )
        return found
