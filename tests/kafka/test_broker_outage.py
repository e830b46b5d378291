"""What the driver's clients do when a broker goes away and comes back; no Spark."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

import pytest

from sinksdk import RetriableException, TopicPartition
from sinksdk.topics import Subscription
from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
from sinksdk.topics.kafka.cluster import Cluster
from tests.integration.freezing import stop
from tests.kafka.broker import Broker, serving
from tests.kafka.topics import create_topic

pytestmark = [pytest.mark.extended, pytest.mark.slow]

PARTITION = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """One to be killed."""
    with serving() as made:
        yield made


def test_offsets_are_mirrored_again_once_the_coordinator_is_back(broker: Broker) -> None:
    """Librdkafka's admin call for it times out for ever after a restart, or aborts the process."""
    create_topic(broker.bootstrap, PARTITION.topic)
    source = KafkaSource(KafkaClient(broker.bootstrap))
    group = ConsumerGroup(source.cluster, "connect-archive")
    written(group, 1)
    broker.kill()
    with pytest.raises(RetriableException, match="consumer group connect-archive"):
        group.write({PARTITION: 2})
    broker.start()

    written(group, 3)

    assert group.offsets([PARTITION]) == {PARTITION: 3}
    assert list(source.partitions(Subscription(("orders",)))) == [PARTITION]


def test_topic_ids_are_told_again_once_the_broker_is_back(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While nobody responds the request is repeated, and then made by a new client."""
    monkeypatch.setattr("sinksdk.topics.kafka.cluster.REPEAT_AFTER", 2.0)
    create_topic(broker.bootstrap, PARTITION.topic)
    cluster = Cluster(KafkaClient(broker.bootstrap).librdkafka())
    before = cluster.topic_ids([PARTITION.topic])
    assert before
    stop(broker.pid)
    with pytest.raises(RetriableException):
        cluster.topic_ids([PARTITION.topic])
    broker.kill()
    with pytest.raises(RetriableException):
        cluster.topic_ids([PARTITION.topic])
    broker.start()

    assert told(cluster) == before
    broker.restart()
    assert told(cluster) == before


def told(cluster: Cluster) -> Mapping[str, str]:
    """Ask until there is an answer."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.topic_ids([PARTITION.topic])
        except RetriableException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def written(group: ConsumerGroup, offset: int) -> None:
    """Write until it is done: the coordinator may still be loading."""
    deadline = time.monotonic() + 60
    while True:
        try:
            group.write({PARTITION: offset})
        except RetriableException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return
