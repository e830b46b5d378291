"""Kafka topics as a source of records."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from sinksdk.errors import MissingSourceTopicException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.sources.base import Subscription
from sinksdk.sources.kafka.client import KafkaClient
from sinksdk.sources.kafka.cluster import Cluster, Topic
from sinksdk.sources.kafka.probe import first_offset

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ISOLATION: Final = "isolation.level"
_COMMITTED: Final = "read_committed"


class KafkaSource:
    """Topics of one Kafka cluster, read by Spark's own batch source, up to the last stable offset.

    Args:
        client: how to reach the cluster.
        overrides: properties of the reading clients, without the ``consumer.override.`` they have in a
            connector's configuration; ``isolation.level`` is ``read_committed`` unless they say otherwise.

    Raises:
        ConfigException: the clients do not accept the properties.
    """

    def __init__(self, client: KafkaClient, overrides: Mapping[str, str] | None = None) -> None:
        self._java = {_ISOLATION: _COMMITTED, **client.java(overrides)}
        self._librdkafka = client.librdkafka(overrides)
        self.cluster = Cluster(self._librdkafka)

    @property
    def reads_together(self) -> bool:
        """Yes: each read asks the cluster what there is, whether of one partition or of hundreds."""
        return True

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """See :meth:`sinksdk.sources.base.Source.partitions`. Kafka's own topics match no regex."""
        topics = self._topics(subscription)
        found = [
            TopicPartition(topic.name, number) for topic in topics.values() for number in topic.partitions
        ]
        return self.cluster.extents(found, committed_only=self._is_committed_only)

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Kafka's own topic ids (KIP-516)."""
        return {name: topic.id for name, topic in self.cluster.topics(topics).items()}

    def first_record(self, partition: TopicPartition, offsets: OffsetRange) -> int:
        """Reads one record: behind compacted records and transaction markers there may be none."""
        return first_offset({**self._librdkafka, _ISOLATION: self._java[_ISOLATION]}, partition, offsets)

    def read(self, spark: SparkSession, ranges: Mapping[TopicPartition, OffsetRange]) -> DataFrame:
        """See :meth:`sinksdk.sources.base.Source.read`."""
        from sinksdk.sources.kafka.frames import read_ranges  # noqa: PLC0415 - looking must not need pyspark

        return read_ranges(spark, ranges, self._java)

    @property
    def _is_committed_only(self) -> bool:
        return self._java[_ISOLATION] == _COMMITTED

    def _topics(self, subscription: Subscription) -> dict[str, Topic]:
        if subscription.regex:
            return self.cluster.topics(subscription.select(self.cluster.topic_names()))
        found = self.cluster.topics(subscription.topics)
        missing = sorted(set(subscription.topics) - found.keys())
        if missing:
            names = ", ".join(map(repr, missing))
            raise MissingSourceTopicException(
                missing,
                f"the Kafka cluster at {self.cluster.bootstrap} has no topic {names}: create it, or take it "
                f"out of the connector's 'topics'",
            )
        return found
