from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinksdk import ConnectException, RetriableException, TopicPartition
from sinksdk.topics.kafka import cluster as module
from sinksdk.topics.kafka.cluster import Cluster, ConsumerGroup
from sinksdk.topics.kafka.renewal import RENEW_AFTER, REPEAT_AFTER, Renewed

BROKERS = {1: SimpleNamespace(id=1)}
PARTITION = TopicPartition("t", 0)
TIMED_OUT = KafkaError._TIMED_OUT


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Broker:
    def __init__(self) -> None:
        self.clock = Clock()
        self.is_frozen = False
        self.names_brokers = True
        self.consumers: list[Consumer] = []
        self.admins: list[Admin] = []

    def request(self, client: Any, timeout: float) -> None:
        if self.is_frozen or client.is_stuck:
            self.clock.now += timeout
            raise KafkaException(KafkaError(TIMED_OUT))


class Consumer:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_stuck = self.is_closed = False
        broker.consumers.append(self)

    def list_topics(self, name: str, *, timeout: float) -> Any:
        self.broker.request(self, timeout)
        known = SimpleNamespace(topic=name, error=None, partitions={0: SimpleNamespace(leader=1)})
        return SimpleNamespace(topics={name: known}, brokers=BROKERS if self.broker.names_brokers else {})

    def offsets_for_times(self, rows: Any, timeout: float) -> list[Any]:
        self.broker.request(self, timeout)
        return [SimpleNamespace(topic=r.topic, partition=r.partition, offset=7, error=None) for r in rows]

    def committed(self, rows: Any, timeout: float) -> list[Any]:
        self.broker.request(self, timeout)
        return [SimpleNamespace(topic=r.topic, partition=r.partition, offset=3, error=None) for r in rows]

    def close(self) -> None:
        self.is_closed = True


class Admin:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.is_stuck = False
        self.asked = 0
        self.late: list[Future[Any]] = []
        broker.admins.append(self)

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        self.asked += 1
        return {name: self._response(request_timeout) for name in topics.topic_names}

    def _response(self, request_timeout: float) -> Future[Any]:
        assert request_timeout >= 3600, "a late response would end the process (librdkafka#4605)"
        response: Future[Any] = Pending(self.broker.clock)
        if self.is_stuck:
            self.late.append(response)
        else:
            response.set_result(SimpleNamespace(topic_id="id"))
        return response


class Pending(Future[Any]):
    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def result(self, timeout: float | None = None) -> Any:
        if not self.done():
            self._clock.now += timeout or 0.0
        return super().result(0)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    found = Broker()
    monkeypatch.setattr(module, "bystander", lambda *_: Consumer(found))
    monkeypatch.setattr(module, "AdminClient", lambda _: Admin(found))
    monkeypatch.setattr(module, "Renewed", at_once)
    return found


def at_once(create: Callable[[], Any], close: Callable[[Any], None], **settings: Any) -> Renewed[Any]:
    return Renewed(create, close, background=lambda run: run(), **settings)


@pytest.fixture
def cluster(broker: Broker) -> Cluster:
    return Cluster({"bootstrap.servers": "here:9092"}, clock=broker.clock)


def fail(ask: Callable[[], object]) -> None:
    with pytest.raises(RetriableException):
        ask()


def test_topic_id_request_without_a_response_is_repeated_then_sent_by_a_new_client(
    broker: Broker, cluster: Cluster
) -> None:
    # Regression: a request stayed pending for an hour, was not repeated, and its client not replaced.
    cluster.topic_ids(["t"])
    stuck = broker.admins[0]
    stuck.is_stuck = True
    asked = stuck.asked

    fail(lambda: cluster.topic_ids(["t"]))
    fail(lambda: cluster.topic_ids(["t"]))

    assert stuck.asked == asked + 2, "the request is repeated on the same client"
    assert cluster.topic_ids(["t"]) == {"t": "id"}
    assert len(broker.admins) == 2
    assert broker.clock.now == RENEW_AFTER == 2 * REPEAT_AFTER


def test_a_late_response_of_a_replaced_client_is_not_used(broker: Broker, cluster: Cluster) -> None:
    # The topic may have been created again since.
    cluster.topic_ids(["t"])
    broker.admins[0].is_stuck = True
    fail(lambda: cluster.topic_ids(["t"]))
    fail(lambda: cluster.topic_ids(["t"]))
    for response in broker.admins[0].late:
        response.set_result(SimpleNamespace(topic_id="old"))

    assert cluster.topic_ids(["t"]) == {"t": "id"}


def test_a_consumer_without_responses_is_replaced_and_closed(broker: Broker, cluster: Cluster) -> None:
    # The consumer may have dropped every broker (confluentinc/librdkafka#5301).
    stuck = broker.consumers[0]
    stuck.is_stuck = True

    fail(lambda: cluster.partitions(["t"]))
    assert not stuck.is_closed
    fail(lambda: cluster.partitions(["t"]))

    assert stuck.is_closed
    assert cluster.partitions(["t"]) == {"t": [PARTITION]}


def test_a_frozen_broker_costs_one_client_each_twenty_seconds(broker: Broker, cluster: Cluster) -> None:
    broker.is_frozen = True
    while broker.clock.now < 120:
        fail(lambda: cluster.partitions(["t"]))
    broker.is_frozen = False

    assert cluster.partitions(["t"])
    assert len(broker.consumers) == 1 + 120 / RENEW_AFTER
    assert [one.is_closed for one in broker.consumers] == [True] * 6 + [False]


def test_a_response_that_names_no_broker_replaces_the_client_at_once(
    broker: Broker, cluster: Cluster
) -> None:
    # The client has dropped all brokers it knew.
    broker.names_brokers = False
    with pytest.raises(RetriableException, match="names no broker"):
        cluster.partitions(["t"])
    broker.names_brokers = True

    assert broker.consumers[0].is_closed
    assert cluster.partitions(["t"]) == {"t": [PARTITION]}


def test_a_client_that_responds_to_one_kind_of_request_only_is_replaced(
    broker: Broker, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Metadata comes from any broker, offsets from a partition's leader.
    def never(_: Any, timeout: float) -> Any:
        broker.clock.now += timeout
        raise KafkaException(KafkaError(TIMED_OUT))

    monkeypatch.setattr(broker.consumers[0], "offsets_for_times", never)
    for _ in range(2):
        cluster.partitions(["t"])
        fail(lambda: cluster.extents([PARTITION]))

    assert cluster.extents([PARTITION])
    assert len(broker.consumers) == 2


def test_an_error_of_the_broker_is_a_response(broker: Broker) -> None:
    renewed = at_once(lambda: Consumer(broker), Consumer.close, clock=broker.clock)
    for _ in range(5):
        broker.clock.now += RENEW_AFTER
        with pytest.raises(KafkaException), renewed.request("metadata"):
            raise KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))

    assert len(broker.consumers) == 1


def test_a_group_without_responses_gets_a_new_client(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    # The group's coordinator may now be a broker that the client has dropped.
    monkeypatch.setattr(module, "Renewed", lambda *each: at_once(*each, clock=broker.clock))
    group = ConsumerGroup(SimpleNamespace(properties={}, bootstrap="here:9092"), "connect-c")  # type: ignore[arg-type]
    broker.consumers[0].is_stuck = True

    fail(lambda: group.offsets([PARTITION]))
    fail(lambda: group.offsets([PARTITION]))

    assert group.offsets([PARTITION]) == {PARTITION: 3}


def test_a_client_is_closed_only_after_the_requests_of_other_threads(broker: Broker) -> None:
    renewed = at_once(lambda: Consumer(broker), Consumer.close, clock=broker.clock)
    inside, go_on = threading.Event(), threading.Event()

    def long_request() -> None:
        with renewed.request("offsets"):
            inside.set()
            assert go_on.wait(10)

    thread = threading.Thread(target=long_request)
    thread.start()
    assert inside.wait(10)
    broker.is_frozen = True
    for _ in range(2):
        with pytest.raises(KafkaException), renewed.request("metadata") as client:
            broker.request(client, REPEAT_AFTER)
    assert not broker.consumers[0].is_closed
    with renewed.request("metadata") as client:
        assert client is not broker.consumers[0]

    go_on.set()
    thread.join()
    assert broker.consumers[0].is_closed


def test_refused_authentication_is_a_connect_exception(broker: Broker, cluster: Cluster) -> None:
    def refuse(_: str, *, timeout: float) -> Any:
        assert timeout
        raise KafkaException(KafkaError(KafkaError._AUTHENTICATION))

    broker.consumers[0].list_topics = refuse  # type: ignore[method-assign]
    with pytest.raises(ConnectException, match="the user's rights"):
        cluster.partitions(["t"])
