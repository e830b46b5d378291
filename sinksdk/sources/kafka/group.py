"""A connector's consumer group: where Kafka's own tools look for its lag."""

from __future__ import annotations

from collections.abc import Mapping

from sinksdk.records import TopicPartition
from sinksdk.sources.kafka.cluster import Cluster


class ConsumerGroup:
    """A consumer group whose offsets are read and written from outside; nobody ever joins it.

    Args:
        cluster: where it is.
        name: its name; Connect's for a sink is ``connect-<connector>``.
    """

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name

    def __str__(self) -> str:
        return f"consumer group {self.name} at {self._cluster.bootstrap}"

    def offsets(self) -> dict[TopicPartition, int]:
        """What it has committed; nothing where it does not exist.

        Raises:
            RetriableException: no broker answers.
            ConnectException: access is denied.
        """
        return self._cluster.group_offsets(self.name)

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Make its offsets these; those of other partitions stay.

        Raises:
            RetriableException, ConnectException: as :meth:`offsets`; also where a consumer is in the group.
        """
        self._cluster.alter_group_offsets(self.name, offsets)
