"""Kafka, through librdkafka: what there is, its records, and where dead letters go."""

from __future__ import annotations

from sinksdk.sources.kafka.client import KafkaClient
from sinksdk.sources.kafka.group import ConsumerGroup
from sinksdk.sources.kafka.source import KafkaSource

__all__ = ["ConsumerGroup", "KafkaClient", "KafkaSource"]
