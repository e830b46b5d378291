"""Kafka topics as a source of records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from sinksdk.errors import MissingSourceTopicException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions, Subscription
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import Cluster
from sinksdk.topics.kafka.probe import first_offsets
from sinksdk.topics.kafka.reader import KafkaReader

_ISOLATION: Final = "isolation.level"


class KafkaSource:
    """Topics of one Kafka cluster (:class:`~sinksdk.topics.base.Source`), read up to the last stable offset.

    Args:
        overrides: properties of the reading clients, without the ``consumer.override.`` they have in a
            connector's configuration; ``isolation.level`` is ``read_committed`` unless they say otherwise.

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
        """Kafka's own topic ids (KIP-516)."""
        return self.cluster.topic_ids(topics)

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
