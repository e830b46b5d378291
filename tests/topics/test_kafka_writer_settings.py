"""How a Kafka writer is configured; ``tests/kafka/test_source_writer.py`` has what it does."""

from __future__ import annotations

import pytest

from sinksdk.engine.options import TaskName
from sinksdk.source import SourceConnectorConfig
from sinksdk.topics.kafka import KafkaClient, KafkaWriter


@pytest.mark.parametrize(
    ("settings", "milliseconds"),
    [
        ({}, 60_000),
        ({"transaction.boundary": "interval"}, 120_000),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}, 60_000),
        ({"transaction.boundary": "interval", "producer.override.transaction.timeout.ms": "90000"}, 90_000),
        ({"producer.override.transaction.timeout.ms": "5000"}, 5_000),
    ],
)
def test_a_transaction_may_be_open_for_longer_than_it_is_meant_to_be(
    settings: dict[str, str], milliseconds: int
) -> None:
    """An interval of 60 s, the default, with Kafka's 60 s would fail whenever the commit comes a moment late."""
    config = SourceConnectorConfig.parse({"name": "c", **settings})
    writer = KafkaWriter.of(config, KafkaClient("host:9092"), TaskName("c", 0))
    assert writer._properties["transaction.timeout.ms"] == milliseconds
