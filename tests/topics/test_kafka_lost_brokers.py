"""librdkafka's real clients with a broker whose responses name no broker for a while.

A broker that was frozen for longer than its session behaves so right after it wakes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sinksdk import RetriableException, TopicPartition
from sinksdk.topics.kafka import cluster as module
from sinksdk.topics.kafka import renewal
from sinksdk.topics.kafka.cluster import Cluster
from tests.topics.fake_broker import FakeBroker

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with FakeBroker(TOPIC) as found:
        yield found


@pytest.fixture
def cluster(broker: FakeBroker) -> Iterator[Cluster]:
    found = Cluster({"bootstrap.servers": broker.bootstrap})
    yield found
    found.close()


def test_pending_request_for_a_topic_id_is_repeated(
    broker: FakeBroker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Regression: librdkafka never sent the request, which stayed pending for an hour, and the connector made
    # no progress.
    assert cluster.topic_ids([TOPIC]).keys() == {TOPIC}
    known = cluster.partitions([TOPIC])
    # If the topics are known, the admin client's own request waits, whatever the consumer knows by then.
    monkeypatch.setattr(cluster, "partitions", lambda _: known)
    broker.names_brokers = False
    # From here on, the limits are a tenth of the real ones, so that the test takes seconds.
    monkeypatch.setattr(module, "REPEAT_AFTER", renewal.REPEAT_AFTER / 10)
    monkeypatch.setattr(renewal, "RENEW_AFTER", renewal.RENEW_AFTER / 10)
    for _ in range(2):
        with pytest.raises(RetriableException):
            cluster.topic_ids([TOPIC])
    broker.names_brokers = True

    assert until_it_responds(cluster), "the id is not known 60 s after the broker woke"


def test_response_that_names_no_broker_replaces_the_client(broker: FakeBroker, cluster: Cluster) -> None:
    assert cluster.partitions([TOPIC]) == {TOPIC: [TopicPartition(TOPIC, 0)]}
    broker.names_brokers = False
    with pytest.raises(RetriableException, match="names no broker"):
        cluster.partitions([TOPIC])
    broker.names_brokers = True

    assert cluster.partitions([TOPIC]) == {TOPIC: [TopicPartition(TOPIC, 0)]}
    assert broker.forgotten


def until_it_responds(cluster: Cluster) -> bool:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            return bool(cluster.topic_ids([TOPIC]))
        except RetriableException:
            time.sleep(0.1)
    return False


@pytest.mark.parametrize(
    "properties",
    [
        {"group.protocol": "consumer"},
        {"fetch.wait.max.ms": "20000", "socket.timeout.ms": "60000"},
        {"socket.timeout.ms": "1000"},
    ],
    ids=["protocol", "long waits", "short waits"],
)
def test_properties_of_a_connector_do_not_contradict_request_timeouts(
    broker: FakeBroker, properties: dict[str, str]
) -> None:
    found = Cluster({"bootstrap.servers": broker.bootstrap, **properties})
    assert found.partitions([TOPIC])
    found.close()
