"""Topics of a real broker; no Spark."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from sinksdk import (
    ConfigException,
    MissingSourceTopicException,
    OffsetRange,
    RetriableException,
    TopicPartition,
)
from sinksdk.topics import Subscription
from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
from sinksdk.topics.kafka.consumer import Consumer as RecordConsumer
from tests.helpers.fake_messages import CLIENTS
from tests.helpers.ports import closed_port
from tests.kafka.topics import await_decided, create_topic, delete_topic, produce, unused_name

pytestmark = pytest.mark.slow


@pytest.fixture
def source(bootstrap: str) -> KafkaSource:
    return KafkaSource(KafkaClient(bootstrap))


def test_partitions_return_start_and_end_of_the_log(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name(), 3)
    produce(bootstrap, topic, [b"a", b"b"], partition=1)

    found = source.partitions(Subscription((topic,)))

    assert found == {
        TopicPartition(topic, 0): OffsetRange(0, 0),
        TopicPartition(topic, 1): OffsetRange(0, 2),
        TopicPartition(topic, 2): OffsetRange(0, 0),
    }


def test_partitions_end_at_the_last_stable_offset(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name())
    produce(bootstrap, topic, [b"before"])
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": unused_name("open")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, b"in the transaction")
    producer.flush(60)
    partition, everything = TopicPartition(topic, 0), {"isolation.level": "read_uncommitted"}

    assert source.partitions(Subscription((topic,)))[partition] == OffsetRange(0, 1)
    uncommitted = KafkaSource(KafkaClient(bootstrap), everything)
    assert uncommitted.partitions(Subscription((topic,)))[partition] == OffsetRange(0, 2)

    producer.commit_transaction(60)
    await_decided(bootstrap, topic, 0)
    assert source.partitions(Subscription((topic,)))[partition] == OffsetRange(0, 3)


def test_all_missing_topics_are_named(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name())

    with pytest.raises(
        MissingSourceTopicException, match=r"has no topic 'gone-1', 'gone-2': create it"
    ) as caught:
        source.partitions(Subscription((topic, "gone-2", "gone-1")))

    assert caught.value.topics == ("gone-1", "gone-2")


def test_regex_does_not_match_kafkas_internal_topics(bootstrap: str, source: KafkaSource) -> None:
    prefix = unused_name("regex")
    names = {create_topic(bootstrap, f"{prefix}-{end}") for end in ("a", "b")}

    assert {p.topic for p in source.partitions(Subscription(regex=f"{prefix}-.*"))} == names
    assert not [p for p in source.partitions(Subscription(regex=".*")) if p.topic.startswith("__")]
    assert source.partitions(Subscription(regex="no-such-.*")) == {}


def test_topic_created_again_has_another_id(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name())
    before = source.topic_ids([topic])
    delete_topic(bootstrap, topic)

    assert source.topic_ids([topic]) == {}
    create_topic(bootstrap, topic)
    assert source.topic_ids([topic])[topic] != before[topic]


def test_first_records_skip_markers_and_aborted_transactions(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name())
    partition = TopicPartition(topic, 0)
    produce(bootstrap, topic, [b"a", b"b"], transaction=unused_name("kept"))
    produce(bootstrap, topic, [b"c", b"d"], transaction=unused_name("aborted"), abort=True)

    assert source.partitions(Subscription((topic,)))[partition] == OffsetRange(0, 6)
    for start, first in ((0, 0), (1, 1), (2, 6)):
        assert source.first_records({partition: OffsetRange(start, 6)}) == {partition: first}


@pytest.mark.parametrize("client", CLIENTS)
def test_position_moves_past_an_aborted_transaction(bootstrap: str, client: str) -> None:
    # Only this shows the reader that the broker responds while records are skipped; librdkafka does
    # not document it.
    topic = create_topic(bootstrap, unused_name())
    partition = TopicPartition(topic, 0)
    properties = {"bootstrap.servers": bootstrap, "isolation.level": "read_committed"}
    with RecordConsumer(properties, CLIENTS[client]) as consumer:
        consumer.add({partition: 0})
        assert consumer.position(partition) < 0
        found = []
        for number in range(3):
            produce(bootstrap, topic, [b"a", b"b"], transaction=unused_name("aborted"), abort=True)
            await_decided(bootstrap, topic, 0)
            deadline = time.monotonic() + 10
            while consumer.position(partition) < 3 * (number + 1) and time.monotonic() < deadline:
                filled = consumer.fill(partition, timeout=0.1, end=100, max_rows=9, max_bytes=99)
                assert filled.batch is None
            found.append(consumer.position(partition))
    assert found == [3, 6, 9]


@pytest.mark.extended
def test_first_records_of_many_partitions_take_one_consumer(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name(), 40)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(40):
        producer.produce(topic, b"a", partition=number)
    producer.commit_transaction(30)
    for number in range(40):
        await_decided(bootstrap, topic, number)

    behind = {TopicPartition(topic, number): OffsetRange(number % 2, 2) for number in range(40)}
    deadline, taken = time.monotonic() + 60, 60.0
    while taken >= 5:  # on a busy machine the first query may take longer
        began = time.monotonic()
        assert began < deadline
        assert source.first_records(behind) == {p: 2 * (p.partition % 2) for p in behind}
        taken = time.monotonic() - began


def test_group_offsets_are_read_back_and_leave_other_partitions(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name(), 2)
    group = ConsumerGroup(source.cluster, unused_name("connect"))
    p0, p1 = TopicPartition(topic, 0), TopicPartition(topic, 1)

    assert group.offsets([p0, p1]) == {}
    group.write({p0: 3, p1: 4})
    group.write({p1: 5})
    assert group.offsets([p0, p1]) == {p0: 3, p1: 5}


def test_group_commit_succeeds_despite_a_deleted_topic(bootstrap: str, source: KafkaSource) -> None:
    # Regression: afterwards no offset of the connector was mirrored.
    topic, gone = create_topic(bootstrap, unused_name()), create_topic(bootstrap, unused_name("gone"))
    group = ConsumerGroup(source.cluster, unused_name("connect"))
    here, deleted = TopicPartition(topic, 0), TopicPartition(gone, 0)
    group.write({here: 1, deleted: 1})
    delete_topic(bootstrap, gone)

    group.write({deleted: 2})
    group.write({here: 3, deleted: 3})

    assert group.offsets([here]) == {here: 3}
    assert not group.is_in_use({deleted: 1})


def test_group_is_in_use_while_a_consumer_is_a_member(bootstrap: str, source: KafkaSource) -> None:
    topic = create_topic(bootstrap, unused_name())
    partition = TopicPartition(topic, 0)
    group = ConsumerGroup(source.cluster, unused_name("connect"))
    group.write({partition: 3})
    assert not group.is_in_use({partition: 3})
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group.name, "enable.auto.commit": False})
    member.subscribe([topic])
    deadline = time.monotonic() + 60
    while not member.assignment() and time.monotonic() < deadline:
        member.poll(0.1)

    assert group.is_in_use(group.offsets([partition]))
    member.close()
    assert not group.is_in_use(group.offsets([partition]))
    assert group.offsets([partition]) == {partition: 3}


def test_unreachable_cluster_is_retriable() -> None:
    with closed_port() as port:
        address = f"127.0.0.1:{port}"
        source = KafkaSource(KafkaClient(address), {"librdkafka.socket.timeout.ms": "1000"})

        with pytest.raises(RetriableException, match=f"at {address} for its topics failed"):
            source.partitions(Subscription(("t",)))


def test_refused_properties_are_a_config_exception_before_any_connection(tmp_path: Path) -> None:
    with pytest.raises(ConfigException, match="client does not accept its properties"):
        KafkaSource(KafkaClient("127.0.0.1:1"), {"security.protocol": "CARRIER_PIGEON"})
