"""A connector's consumer group: where Kafka's own tools look for its lag."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk.records import TopicPartition
from sinksdk.topics.kafka.cluster import GONE, Cluster, asking, bystander

_TIMEOUT: Final = 15.0  # seconds
# What Kafka answers to a commit from outside while somebody is in the group.
_IN_USE: Final = frozenset(
    {
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    }
)


class ConsumerGroup:
    """A consumer group whose offsets are read and written from outside; nobody ever joins it.

    Args:
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
        """Make its offsets these; those of other partitions stay. A topic that is gone has none any more.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`; also where a consumer is in the group.
        """
        with asking(self._cluster.bootstrap, str(self)):
            self._commit(offsets)

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Whether consumers are in it, which may still commit. Kafka lets nobody else commit meanwhile.

        Args:
            offsets: what it has committed: they are written back, which changes nothing. Without any there
                is nothing to find out.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`.
        """
        with asking(self._cluster.bootstrap, str(self)):
            try:
                self._commit(offsets)
            except KafkaException as error:
                if error.args[0].code() in _IN_USE:
                    return True
                raise
        return False

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        rows = [KafkaPartition(p.topic, p.partition, offset) for p, offset in sorted(offsets.items())]
        if not rows:
            return
        try:
            done = self._consumer.commit(offsets=rows, asynchronous=False)
        except KafkaException as error:
            # The whole call fails, with one of their errors, where no partition succeeds.
            if error.args[0].code() not in GONE:
                raise
            return
        _raise_any([row for row in done if row.error is None or row.error.code() not in GONE])


def _raise_any(rows: Collection[KafkaPartition]) -> None:
    for row in rows:
        if row.error is not None:
            raise KafkaException(row.error)
