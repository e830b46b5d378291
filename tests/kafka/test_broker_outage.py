"""The driver's clients during and after an outage of the broker; no Spark."""

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
    with serving() as made:
        yield made


def test_offsets_are_mirrored_again_after_a_restart_of_the_coordinator(broker: Broker) -> None:
    # After a restart, librdkafka's admin call for offsets always times out, or aborts the process.
    create_topic(broker.bootstrap, PARTITION.topic)
    source = KafkaSource(KafkaClient(broker.bootstrap))
    group = ConsumerGroup(source.cluster, "connect-archive")
    until_written(group, 1)
    broker.kill()
    with pytest.raises(RetriableException, match="consumer group connect-archive"):
        group.write({PARTITION: 2})
    broker.start()

    until_written(group, 3)

    assert group.offsets([PARTITION]) == {PARTITION: 3}
    assert list(source.partitions(Subscription(("orders",)))) == [PARTITION]


def test_topic_ids_are_returned_again_after_a_restart_of_the_broker(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
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

    assert until_response(cluster) == before
    broker.restart()
    assert until_response(cluster) == before


def until_response(cluster: Cluster) -> Mapping[str, str]:
    deadline = time.monotonic() + 60
    while True:
        try:
            return cluster.topic_ids([PARTITION.topic])
        except RetriableException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def until_written(group: ConsumerGroup, offset: int) -> None:
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
