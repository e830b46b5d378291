"""A Kafka cluster as where sources write."""

from __future__ import annotations

from dataclasses import dataclass

from sinksdk.engine.options import TaskName
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.offsets import KafkaOffsets
from sinksdk.topics.kafka.writer import KafkaWriter


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """A Kafka cluster as where sources write. See :class:`~sinksdk.engine.writer.Target`.

    Args:
        client: how it is reached; each connector's own properties come on top.
    """

    client: KafkaClient

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> KafkaWriter:
        return KafkaWriter.of(config, self.client, name)

    def offsets(self, config: SourceConnectorConfig) -> KafkaOffsets:
        return KafkaOffsets.of(config, self.client)
