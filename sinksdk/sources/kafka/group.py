"""A connector's consumer group: where Kafka's own tools look for its lag."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.records import TopicPartition
from sinksdk.sources.kafka.cluster import Cluster, asking, bystander

_TIMEOUT: Final = 15.0  # seconds


class ConsumerGroup:
    """A consumer group whose offsets are read and written from outside; nobody ever joins it.

    Args:
        cluster: where it is.
        name: its name; Connect's for a sink is ``connect-<connector>``.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._consumer = bystander(cluster.properties, name)
        self.name = name

    def __str__(self) -> str:
        return f"consumer group {self.name} at {self._cluster.bootstrap}"

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """What it has committed of these partitions; nothing where it does not exist.

        Raises:
            RetriableException: no broker answers.
            ConnectException: access is denied.
        """
        rows = [KafkaPartition(p.topic, p.partition) for p in sorted(partitions)]
        with asking(self._cluster.bootstrap, str(self)):
            found = self._consumer.committed(rows, timeout=_TIMEOUT) if rows else []
            _raise_any(found)
        return {TopicPartition(row.topic, row.partition): row.offset for row in found if row.offset >= 0}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make its offsets these; those of other partitions stay.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`; also where a consumer is in the group.
        """
        rows = [KafkaPartition(p.topic, p.partition, offset) for p, offset in sorted(offsets.items())]
        with asking(self._cluster.bootstrap, str(self)):
            _raise_any(self._consumer.commit(offsets=rows, asynchronous=False))


def _raise_any(rows: Collection[KafkaPartition]) -> None:
    for row in rows:
        if row.error is not None:
            raise KafkaException(row.error)
