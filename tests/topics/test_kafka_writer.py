"""A Kafka writer before any broker is asked; ``tests/kafka/test_source_writer.py`` has what it writes."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException
from sinksdk.engine.options import TaskName
from sinksdk.source import SourceConnectorConfig, SourceRecord
from sinksdk.topics.kafka import KafkaClient, KafkaWriter


def test_a_task_must_not_write_among_its_own_offsets() -> None:
    """As in Connect: what it wrote there would be taken for offsets, or waited for while its transaction is open."""
    writer = KafkaWriter({}, "g-files-0", "files", "offsets")
    with pytest.raises(
        ConnectException, match=r"connector files gave a record for topic offsets, in which its own"
    ):
        writer.send(SourceRecord({}, {}, "offsets", b"1"))


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
