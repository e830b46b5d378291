from __future__ import annotations

import time

import pytest

from sinksdk import (
    ConfigException,
    ConnectException,
    ConnectorConfig,
    Header,
    RetriableException,
    SinkRecord,
)
from sinksdk.topics.kafka import KafkaClient
from sinksdk.topics.kafka.client import producer_properties
from sinksdk.topics.kafka.dead_letters import KafkaDeadLetters
from sinksdk.topics.kafka.own_topics import ensure_dead_letter_topic
from tests.kafka.broker import serving
from tests.kafka.topics import consume, create_topic, unused_name

pytestmark = pytest.mark.slow


def configured(topic: str, **more: str) -> ConnectorConfig:
    raw = {
        "name": "c",
        "topics": "t",
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.topic.replication.factor": "1",
        **more,
    }
    return ConnectorConfig.parse(raw)


def letters_to(topic: str, bootstrap: str, **more: str) -> KafkaDeadLetters:
    config = configured(topic, **more)
    return KafkaDeadLetters(topic, producer_properties(config, KafkaClient(bootstrap)))


def test_dead_letters_in_kafka_equal_the_records(bootstrap: str) -> None:
    topic = unused_name("bad")
    assert ensure_dead_letter_topic(configured(topic), KafkaClient(bootstrap))
    sent = [
        SinkRecord("t", 0, 0, key=b"k", value=b"\xff\x00", timestamp=1_600_000_000_000),
        SinkRecord(
            "t", 0, 1, key=None, value=None, timestamp=5, headers=(Header("h", None), Header("h", b""))
        ),
        SinkRecord("t", 0, 2, key=b"", value=b"", timestamp=1),
        SinkRecord("t", 0, 3, value=b"x" * 900_000, timestamp=2),
    ]
    with letters_to(topic, bootstrap) as letters:
        for letter in [letters.send(record) for record in sent]:
            letter.result(30)
    read = sorted(consume(bootstrap, topic), key=lambda row: row.offset)
    assert [(row.key, row.value, row.timestamp) for row in read] == [
        (record.key, record.value, record.timestamp) for record in sent
    ]
    assert [list(row.headers) for row in read] == [list(record.headers) for record in sent]


@pytest.mark.extended
def test_dead_letters_of_old_records_survive_the_clusters_retention(bootstrap: str) -> None:
    topic = unused_name("bad")
    ensure_dead_letter_topic(configured(topic), KafkaClient(bootstrap))
    with letters_to(topic, bootstrap) as letters:
        letters.send(SinkRecord("t", 0, 0, value=b"old", timestamp=1)).result(30)
    time.sleep(4)  # the tests' broker checks retention every second
    assert [row.value for row in consume(bootstrap, topic)] == [b"old"]


def test_dead_letter_without_a_timestamp_gets_the_current_time(bootstrap: str) -> None:
    topic = create_topic(bootstrap, unused_name("bad"))
    before = time.time_ns() // 1_000_000
    with letters_to(topic, bootstrap) as letters:
        letters.send(SinkRecord("t", 0, 0, value=b"v")).result(30)
    (row,) = consume(bootstrap, topic)
    assert before - 1_000 <= row.timestamp <= time.time_ns() // 1_000_000 + 1_000


def test_dead_letter_topic_is_created_unless_it_exists(bootstrap: str) -> None:
    config = configured(unused_name("bad"))
    assert ensure_dead_letter_topic(config, KafkaClient(bootstrap))
    assert not ensure_dead_letter_topic(config, KafkaClient(bootstrap))


def test_dead_letter_topic_with_more_replicas_than_brokers_is_refused(bootstrap: str) -> None:
    # Connect's default is 3 replicas.
    config = configured(unused_name("bad"), **{"errors.deadletterqueue.topic.replication.factor": "3"})
    with pytest.raises(
        ConfigException, match=r"with 3 replicas: the cluster has 1 broker; set .* to at most 1"
    ):
        ensure_dead_letter_topic(config, KafkaClient(bootstrap))


def test_dead_letter_that_is_too_large_fails_alone(bootstrap: str) -> None:
    topic = create_topic(bootstrap, unused_name("bad"), config={"max.message.bytes": "1000"})
    with letters_to(topic, bootstrap, **{"producer.override.linger.ms": "0"}) as letters:
        letters.send(SinkRecord("t", 0, 0, value=b"small")).result(30)
        large = letters.send(SinkRecord("t", 0, 1, value=b"x" * 5_000))
        with pytest.raises(ConnectException, match=r"raise max.message.bytes of the topic"):
            large.result(30)
        letters.send(SinkRecord("t", 0, 2, value=b"small")).result(30)
    assert [row.value for row in consume(bootstrap, topic)] == [b"small", b"small"]


@pytest.mark.extended
def test_dead_letter_topic_of_an_unreachable_cluster_is_retriable() -> None:
    with pytest.raises(RetriableException, match=r"cannot be read or created at 127.0.0.1:1"):
        ensure_dead_letter_topic(configured("bad"), KafkaClient("127.0.0.1:1"))


@pytest.mark.extended
def test_dead_letters_fail_while_the_broker_is_down_and_succeed_afterwards() -> None:
    settings = {"producer.override.delivery.timeout.ms": "15000", "producer.override.linger.ms": "0"}
    with serving() as broker:
        topic = unused_name("bad")
        ensure_dead_letter_topic(configured(topic), KafkaClient(broker.bootstrap))
        with letters_to(topic, broker.bootstrap, **settings) as letters:
            letters.send(SinkRecord("t", 0, 0, value=b"before")).result(30)
            broker.kill()
            with pytest.raises(ConnectException, match="check whether the cluster responds"):
                letters.send(SinkRecord("t", 0, 1, value=b"meanwhile")).result(60)
            broker.start()
        with letters_to(topic, broker.bootstrap) as letters:
            letters.send(SinkRecord("t", 0, 2, value=b"after")).result(60)
        assert [row.value for row in consume(broker.bootstrap, topic)] == [b"before", b"after"]
