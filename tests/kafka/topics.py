"""Topics for one test, and the records that a plain consumer reads from them."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

_numbers = itertools.count()
_TIMEOUT = 60.0  # seconds; a machine may be busy


class Read(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


def unused_name(prefix: str = "topic") -> str:
    return f"{prefix}-{time.time_ns():x}-{next(_numbers)}"


def create_topic(
    bootstrap: str, name: str, partitions: int = 1, config: Mapping[str, str] | None = None
) -> str:
    """Create a topic and wait until the broker has it; returns its name.

    Many tests choose timestamps, and a broker removes records that are older than a week: so retention is off.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    kept = {"retention.ms": "-1", **(config or {})}
    topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=kept)
    admin.create_topics([topic], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
    await_metadata(bootstrap, name, partitions)
    return name


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=_TIMEOUT)[name].result(_TIMEOUT)
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        if name not in admin.list_topics(timeout=_TIMEOUT).topics:
            return
        time.sleep(0.05)
    message = f"the broker still has topic {name}"
    raise TimeoutError(message)


def await_metadata(bootstrap: str, name: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + _TIMEOUT
    while time.monotonic() < deadline:
        topic = admin.list_topics(timeout=_TIMEOUT).topics.get(name)
        leaders = [p.leader for p in topic.partitions.values()] if topic is not None else []
        if len(leaders) == partitions and min(leaders) >= 0:
            return
        time.sleep(0.05)
    message = f"topic {name} has no leaders"
    raise TimeoutError(message)


def produce(
    bootstrap: str,
    topic: str,
    values: Iterable[bytes | None],
    *,
    partition: int = 0,
    transaction: str = "",
    abort: bool = False,
    keys: int = 1_000_000_000,
) -> None:
    """Append records with ``keys`` different keys; with a transactional id in one transaction."""
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 5, "message.max.bytes": 4_000_000}
    if transaction:
        settings["transactional.id"] = transaction
    producer = Producer(settings)
    if transaction:
        producer.init_transactions(_TIMEOUT)
        producer.begin_transaction()
    for number, value in enumerate(values):
        while True:
            try:
                producer.produce(
                    topic,
                    value,
                    b"k%d" % (number % keys),
                    partition=partition,
                    headers=[("n", b"%d" % number)],
                )
                break
            except BufferError:
                producer.poll(0.1)
    left = producer.flush(_TIMEOUT)
    assert left == 0, f"{left} records were not produced"
    if transaction and abort:
        producer.abort_transaction(_TIMEOUT)
    elif transaction:
        producer.commit_transaction(_TIMEOUT)
    if transaction:
        await_decided(bootstrap, topic, partition)


def await_decided(bootstrap: str, topic: str, partition: int) -> None:
    """Wait until no transaction is open: markers are written after the producer's commit returns."""
    ends = [
        Consumer({"bootstrap.servers": bootstrap, "group.id": "ends", "isolation.level": f"read_{level}"})
        for level in ("committed", "uncommitted")
    ]
    deadline = time.monotonic() + _TIMEOUT
    try:
        while time.monotonic() < deadline:
            asked = TopicPartition(topic, partition)
            stable, last = (end.get_watermark_offsets(asked, timeout=_TIMEOUT)[1] for end in ends)
            if stable == last:
                return
            time.sleep(0.02)
    finally:
        for end in ends:
            end.close()
    message = f"{topic}-{partition} still has an open transaction"
    raise TimeoutError(message)


def consume_decided(bootstrap: str, topic: str) -> list[Read]:
    """Return all committed records of a topic, once no transaction is open in it."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for partition in admin.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions:
        await_decided(bootstrap, topic, partition)
    return consume(bootstrap, topic)


def consume(bootstrap: str, topic: str, *, isolation: str = "read_committed") -> list[Read]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": unused_name("reader"),
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 5,  # the fetch time also delays the event at the end of a growing partition
            "isolation.level": isolation,
            "auto.offset.reset": "earliest",
        }
    )
    found: list[Read] = []
    try:
        partitions = sorted(consumer.list_topics(topic, timeout=_TIMEOUT).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        unread = set(partitions)
        deadline = time.monotonic() + _TIMEOUT
        while unread and time.monotonic() < deadline:
            for message in consumer.consume(10_000, timeout=1):
                error = message.error()
                if error is not None and error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                    continue
                assert error is None, error
                found.append(
                    Read(
                        topic,
                        message.partition(),
                        message.offset(),
                        message.timestamp()[1],
                        message.key(),
                        message.value(),
                        tuple(message.headers() or ()),
                    )
                )
        assert not unread, f"partitions {unread} of {topic} were not read to their end"
    finally:
        consumer.close()
    return sorted(found)
