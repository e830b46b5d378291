"""Kafka: Spark reads the records, confluent-kafka tells what there is and takes the dead letters."""

from __future__ import annotations

from sinksdk.sources.kafka.client import KafkaClient
from sinksdk.sources.kafka.group import ConsumerGroup
from sinksdk.sources.kafka.source import KafkaSource

__all__ = ["ConsumerGroup", "KafkaClient", "KafkaSource"]
