"""Kafka: transactions of a producer with a transactional id, source offsets in a compacted topic."""

from __future__ import annotations

from sinksdk.writers.kafka.offsets import KafkaOffsets
from sinksdk.writers.kafka.offsets_topic import ensure_offsets_topic
from sinksdk.writers.kafka.target import KafkaTarget
from sinksdk.writers.kafka.writer import KafkaWriter

__all__ = ["KafkaOffsets", "KafkaTarget", "KafkaWriter", "ensure_offsets_topic"]
