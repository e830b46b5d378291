"""Reads and writes Kafka through librdkafka."""

from __future__ import annotations

from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.cluster import ConsumerGroup
from sinksdk.topics.kafka.offsets import KafkaOffsets
from sinksdk.topics.kafka.own_topics import ensure_offsets_topic
from sinksdk.topics.kafka.source import KafkaSource
from sinksdk.topics.kafka.writer import KafkaTarget, KafkaWriter

__all__ = [
    "ConsumerGroup",
    "KafkaClient",
    "KafkaOffsets",
    "KafkaSource",
    "KafkaTarget",
    "KafkaWriter",
    "ensure_offsets_topic",
]
