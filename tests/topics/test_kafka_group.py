"""A consumer group as Kafka's answers are understood; the consumer is a stub."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk import ConnectException, RetriableException, TopicPartition
from sinksdk.topics.kafka import ConsumerGroup
from sinksdk.topics.kafka.cluster import Cluster

HERE, GONE, DENIED = (TopicPartition(topic, 0) for topic in ("here", "gone", "denied"))
ERRORS = {
    "gone": KafkaError.UNKNOWN_TOPIC_OR_PART,
    "denied": KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class Row(SimpleNamespace):
    """A partition in an answer; confluent-kafka's own cannot be given an error."""


class Consumer:
    """Commits as librdkafka does: where no partition succeeds the whole call fails."""

    def __init__(self, refusal: int | None = None) -> None:
        self.refusal = refusal
        self.committed_rows: list[dict[str, int]] = []

    def commit(self, offsets: Sequence[KafkaPartition], *, asynchronous: bool) -> list[Any]:
        assert not asynchronous
        assert offsets, "without any librdkafka would commit what it has read"
        if self.refusal is not None:
            raise KafkaException(KafkaError(self.refusal))
        errors = [KafkaError(ERRORS[row.topic]) if row.topic in ERRORS else None for row in offsets]
        if all(errors):
            raise KafkaException(errors[-1])
        rows = zip(offsets, errors, strict=True)
        found = [Row(topic=row.topic, offset=row.offset, error=error) for row, error in rows]
        self.committed_rows.append({row.topic: row.offset for row in found if row.error is None})
        return found


@pytest.fixture
def consumer(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    made = Consumer()
    monkeypatch.setattr("sinksdk.topics.kafka.cluster.bystander", lambda *_: made)
    return made


@pytest.fixture
def group(consumer: Consumer) -> ConsumerGroup:
    cluster = SimpleNamespace(properties={}, bootstrap="here:9092")
    return ConsumerGroup(cast("Cluster", cluster), "connect-c")


def test_a_topic_that_is_gone_keeps_the_others_from_nothing(consumer: Consumer, group: ConsumerGroup) -> None:
    """Regression: the offsets of a deleted topic made every write of the mirror fail, for ever."""
    group.write({GONE: 5, HERE: 7})

    assert consumer.committed_rows == [{"here": 7}]


def test_nothing_but_topics_that_are_gone(group: ConsumerGroup) -> None:
    """Then the whole call fails, with the same error: nothing is left to be written."""
    group.write({GONE: 5})


def test_nothing_to_write(group: ConsumerGroup) -> None:
    """Kafka is not asked."""
    group.write({})
    assert not group.is_in_use({})


@pytest.mark.parametrize("offsets", [{DENIED: 1}, {DENIED: 1, HERE: 2}, {DENIED: 1, GONE: 3, HERE: 2}])
def test_other_refusals_are_raised(group: ConsumerGroup, offsets: dict[TopicPartition, int]) -> None:
    """What is denied is said."""
    with pytest.raises(ConnectException, match="the user's rights"):
        group.write(offsets)


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.REBALANCE_IN_PROGRESS,
        KafkaError.FENCED_INSTANCE_ID,
    ],
)
def test_a_group_with_members_is_in_use(consumer: Consumer, group: ConsumerGroup, code: int) -> None:
    """Kafka takes offsets from outside only while nobody is in the group."""
    assert not group.is_in_use({HERE: 7})
    assert consumer.committed_rows == [{"here": 7}]

    consumer.refusal = code
    assert group.is_in_use({HERE: 7})


def test_a_group_of_which_nothing_is_known_is_asked_again(consumer: Consumer, group: ConsumerGroup) -> None:
    """A coordinator that is loading does not say whether anybody is in it."""
    consumer.refusal = KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    with pytest.raises(RetriableException, match="consumer group connect-c at here:9092"):
        group.is_in_use({HERE: 7})
