"""Create the topics that both sides read: random values of 200 bytes, and JSON of 1 KB."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sinksdk.errors import RetriableException
from sinksdk.offsets import TopicPartition
from sinksdk.topics.kafka import ConsumerGroup, KafkaClient
from sinksdk.topics.kafka.cluster import Cluster as KafkaCluster

PARTITIONS = 4
# Kafka's own default: the group waits for its first members, so that not each of them is a rebalance.
BROKER = {"group.initial.rebalance.delay.ms": "3000"}
_VARIETY = 4096  # different values; more would only cost the producer time: no compressor looks back that far
_PRODUCER = {
    "linger.ms": 50,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 100_000,
    "acks": 1,
    "log_level": 3,
}


@dataclass(frozen=True)
class Topic:
    """A filled topic."""

    name: str
    shape: str
    each: int

    @property
    def records(self) -> int:
        return self.each * PARTITIONS


class Cluster:
    """The Kafka cluster of both sides."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(self, name: str, partitions: int) -> None:
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result()

    def fill(self, name: str, size: int, each: int) -> Topic:
        return self.fill_with(name, "200 B" if size <= 200 else "1 KB JSON", list(_values(size)), each)

    def fill_with(self, name: str, shape: str, values: Sequence[bytes], each: int) -> Topic:
        # All records have keys, every second one has two headers.
        self.create(name, PARTITIONS)
        producer = Producer({**_PRODUCER, "bootstrap.servers": self.bootstrap})
        headers = [("trace", b"0123456789abcdef"), ("kind", b"x")]
        for number in range(each):
            for partition in range(PARTITIONS):
                _produce(
                    producer,
                    topic=name,
                    partition=partition,
                    key=b"key-%07d" % number,
                    value=values[(number * PARTITIONS + partition) % len(values)],
                    headers=headers if number % 2 else None,
                )
        assert producer.flush(120) == 0
        return Topic(name, shape, each)

    def group(self, name: str) -> ConsumerGroup:
        return ConsumerGroup(KafkaCluster(KafkaClient(self.bootstrap).librdkafka()), name)


def committed(group: ConsumerGroup, topic: Topic) -> int:
    return sum(offsets(group, topic).values())


def offsets(group: ConsumerGroup, topic: Topic) -> dict[int, int]:
    # 0: nothing is committed.
    found: dict[int, int] = dict.fromkeys(range(PARTITIONS), 0)
    with suppress(RetriableException):  # the broker does not keep groups yet
        asked = [TopicPartition(topic.name, number) for number in found]
        found.update({place.partition: offset for place, offset in group.offsets(asked).items()})
    return found


def _produce(producer: Producer, **record: Any) -> None:
    while True:
        try:
            producer.produce(**record)
        except BufferError:
            producer.poll(0.1)
        else:
            return


def _values(size: int) -> Iterator[bytes]:
    seeded = random.Random(1)  # noqa: S311 - the same values in every run
    words = b'{"id":%d,"name":"flight","carrier":"UA","origin":"EWR","delay":12,"note":"'
    for _ in range(_VARIETY):
        if size <= 200:
            yield seeded.randbytes(size)
        else:
            text = bytearray((words * (size // len(words) + 1))[:size])
            for place in range(0, size, 7):
                text[place] = seeded.randrange(48, 58)
            yield bytes(text)
