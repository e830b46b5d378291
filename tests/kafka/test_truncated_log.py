"""A broker restored from an older copy of its log, which has grown beyond the commit since (KIP-320)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.topics.base import Partitions, Position, Subscription
from sinksdk.topics.kafka.client import KafkaClient
from sinksdk.topics.kafka.source import KafkaSource
from tests.kafka.broker import Broker, serving

pytestmark = pytest.mark.extended

P0 = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with serving() as running:
        yield running


def produce(broker: Broker, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(P0.topic, f"{number}".encode(), partition=0)
    assert producer.flush(30) == 0


def seen(broker: Broker) -> tuple[OffsetRange, int]:
    found = KafkaSource(KafkaClient(broker.bootstrap)).partitions(Subscription((P0.topic,)))
    assert isinstance(found, Partitions)
    return found[P0], found.epochs[P0]


def truncated(broker: Broker, offset: int, epoch: int) -> dict[TopicPartition, int | None]:
    source = KafkaSource(KafkaClient(broker.bootstrap))
    return dict(source.truncated({P0: Position(offset, epoch)}))


def test_leader_epochs_reveal_a_restored_log(broker: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(P0.topic, 1, 1)])[P0.topic].result(20)
    produce(broker, 60)
    (_, first) = seen(broker)
    broker.stop()
    folder: Path = broker.folder / "data" / "t-0"
    shutil.copytree(folder, broker.folder / "copy")
    broker.start()
    produce(broker, 40)
    extent, second = seen(broker)
    assert extent == OffsetRange(0, 100)
    assert second > first
    assert truncated(broker, 60, first) == truncated(broker, 100, second) == {}
    broker.stop()
    shutil.rmtree(folder)
    shutil.copytree(broker.folder / "copy", folder)
    broker.start()
    produce(broker, 90)
    extent, third = seen(broker)
    assert extent == OffsetRange(0, 150)
    assert third > second

    assert truncated(broker, 100, second) == {P0: 60}
    assert truncated(broker, 61, second) == {P0: 60}
    assert truncated(broker, 60, second) == truncated(broker, 60, first) == {}
    assert truncated(broker, 150, third) == {}
    assert truncated(broker, 150, third + 5) == {P0: None}
