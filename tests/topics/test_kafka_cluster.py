from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from sinksdk import (
    ConnectException,
    MissingSourceTopicException,
    OffsetRange,
    RetriableException,
    TopicPartition,
)
from sinksdk.topics.kafka import ConsumerGroup
from sinksdk.topics.kafka import cluster as module
from sinksdk.topics.kafka.cluster import Cluster, replaced_topics

TOPICS = [f"t{number}" for number in range(12)]


BROKERS = {1: SimpleNamespace(id=1)}


def topic(name: str, error: int | None = None, leaders: Sequence[int] = (1,)) -> Any:
    return SimpleNamespace(
        topic=name,
        partitions={number: SimpleNamespace(leader=leader) for number, leader in enumerate(leaders)},
        error=None if error is None else KafkaError(error),
    )


class Consumer:
    def __init__(self, denied: str = "", gone: str = "") -> None:
        self.denied, self.gone = denied, gone  # names of one topic
        self.requested: list[str | None] = []

    def list_topics(self, name: str | None = None, *, timeout: float) -> Any:
        assert timeout
        self.requested.append(name)
        if name is None:
            hidden = {self.denied, self.gone}
            shown = {name: topic(name) for name in TOPICS if name not in hidden}
            return SimpleNamespace(topics=shown, brokers=BROKERS)
        error = None
        if name == self.denied:
            error = KafkaError.TOPIC_AUTHORIZATION_FAILED
        elif name == self.gone:
            error = KafkaError.UNKNOWN_TOPIC_OR_PART
        return SimpleNamespace(topics={name: topic(name, error)}, brokers=BROKERS)


class Led(Consumer):
    def __init__(self, leaders: Sequence[int] = (1, -1, 1, 1), loses: int = 2) -> None:
        super().__init__()
        self.leaders, self.loses = leaders, loses

    def list_topics(self, name: str | None = None, *, timeout: float) -> Any:
        assert name
        return SimpleNamespace(topics={name: topic(name, leaders=self.leaders)}, brokers=BROKERS)

    def offsets_for_times(self, rows: Any, timeout: float) -> list[Any]:
        if any(self.leaders[row.partition] == -1 for row in rows):
            raise KafkaException(
                KafkaError(KafkaError._TIMED_OUT)
            )  # librdkafka does the same: no partition gets a response
        lost = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return [
            SimpleNamespace(
                topic=row.topic,
                partition=row.partition,
                offset=0 if row.offset == -2 else 7,
                error=lost if row.partition == self.loses else None,
                leader_epoch=4,
            )
            for row in rows
        ]


def test_partition_without_a_leader_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: one partition without a leader stopped all 10,000.
    asking = cluster(monkeypatch, Led())
    found = asking.available(asking.partitions(["t"])["t"])

    assert found == {TopicPartition("t", n): OffsetRange(0, 7) for n in (0, 3)}
    assert found.unavailable == {TopicPartition("t", n) for n in (1, 2)}
    assert found.epochs == {TopicPartition("t", n): 4 for n in (0, 3)}


def test_cluster_without_any_leader_is_retriable(monkeypatch: pytest.MonkeyPatch) -> None:
    asking = cluster(monkeypatch, Led(leaders=(-1, -1)))

    with pytest.raises(RetriableException, match="no partition has a leader"):
        asking.available(asking.partitions(["t"])["t"])


class Admin:
    def __init__(self) -> None:
        self.requested: list[list[str]] = []
        self.ready: dict[str, str] = {}
        self.responses: dict[str, Future[Any]] = {}

    def __len__(self) -> int:
        return 0

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout
        names = list(topics.topic_names)
        self.requested.append(names)
        responses: dict[str, Future[Any]] = {name: Awaited(name, self.ready) for name in names}
        self.responses |= responses
        return responses

    def respond(self, name: str, topic_id: str) -> None:
        self.responses[name].set_result(SimpleNamespace(topic_id=topic_id))


class Awaited(Future[Any]):
    def __init__(self, name: str, ready: dict[str, str]) -> None:
        super().__init__()
        self._name, self._ready = name, ready

    def result(self, timeout: float | None = None) -> Any:
        if not self.done() and self._name in self._ready:
            self.set_result(SimpleNamespace(topic_id=self._ready[self._name]))
        return super().result(timeout)


def cluster(monkeypatch: pytest.MonkeyPatch, consumer: Consumer, admin: Admin | None = None) -> Cluster:
    monkeypatch.setattr(module, "bystander", lambda *_: consumer)
    monkeypatch.setattr(module, "AdminClient", lambda _: admin)
    monkeypatch.setattr(module, "REPEAT_AFTER", 0.01)
    return Cluster({"bootstrap.servers": "here:9092"}, clock=lambda: 0.0)


def test_topic_ids_are_requested_over_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: each request connected a new client, before each commit of each partition.
    made = []

    class Counted(Admin):
        def __init__(self, settings: Any) -> None:
            super().__init__()
            made.append(settings)
            self.ready["t0"] = "id"

    asking = cluster(monkeypatch, Consumer())
    monkeypatch.setattr(module, "AdminClient", Counted)

    for _ in range(3):
        assert asking.topic_ids(["t0"]) == {"t0": "id"}
    assert len(made) == 1


def test_topic_that_may_not_be_described_is_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: with more than ten topics, such a topic was reported as missing.
    with pytest.raises(
        ConnectException, match=r"topic t3 failed: .*check the client properties and the user's rights"
    ):
        cluster(monkeypatch, Consumer(denied="t3")).partitions(TOPICS)


def test_many_topics_take_one_request_and_one_for_each_missing_topic(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = Consumer(gone="t3")

    assert len(cluster(monkeypatch, consumer).partitions(TOPICS)) == 11
    assert consumer.requested == [None, "t3"]


def test_topic_ids_of_earlier_responses_are_requested_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: while one response was pending, another topic was deleted and created again unnoticed.
    admin = Admin()
    asking = cluster(monkeypatch, Consumer(), admin)

    with pytest.raises(RetriableException, match="id of topic t0"):
        asking.topic_ids(["t0", "t1"])
    admin.respond("t1", "old")
    with pytest.raises(RetriableException, match="id of topic t0"):
        asking.topic_ids(["t0", "t1"])
    assert admin.requested == [["t0", "t1"], ["t1"]]
    admin.ready["t0"] = "old"
    with pytest.raises(RetriableException, match="id of topic t1"):
        asking.topic_ids(["t0", "t1"])
    admin.ready |= {"t0": "new", "t1": "new"}

    assert asking.topic_ids(["t0", "t1"]) == {"t0": "new", "t1": "new"}
    assert admin.requested == [["t0", "t1"], ["t1"], ["t0"]], "a request without a response is not repeated"


HERE, GONE, DENIED = (TopicPartition(topic, 0) for topic in ("here", "gone", "denied"))
ERRORS = {
    "gone": KafkaError.UNKNOWN_TOPIC_OR_PART,
    "denied": KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


class Row(SimpleNamespace):
    # confluent-kafka's own class does not accept an error.
    pass


class GroupConsumer:
    # librdkafka fails the whole call if no partition succeeds.
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
def consumer(monkeypatch: pytest.MonkeyPatch) -> GroupConsumer:
    made = GroupConsumer()
    monkeypatch.setattr("sinksdk.topics.kafka.cluster.bystander", lambda *_: made)
    return made


@pytest.fixture
def group(consumer: GroupConsumer) -> ConsumerGroup:
    cluster = SimpleNamespace(properties={}, bootstrap="here:9092")
    return ConsumerGroup(cast("Cluster", cluster), "connect-c")


def test_group_commit_skips_deleted_topics(consumer: GroupConsumer, group: ConsumerGroup) -> None:
    # Regression: a deleted topic made every write of the mirrored offsets fail.
    group.write({GONE: 5, HERE: 7})

    assert consumer.committed_rows == [{"here": 7}]


def test_group_commit_of_deleted_topics_only_succeeds(group: ConsumerGroup) -> None:
    group.write({GONE: 5})


def test_group_commit_without_offsets_makes_no_request(group: ConsumerGroup) -> None:
    group.write({})
    assert not group.is_in_use({})


@pytest.mark.parametrize("offsets", [{DENIED: 1}, {DENIED: 1, HERE: 2}, {DENIED: 1, GONE: 3, HERE: 2}])
def test_group_commit_raises_other_errors(group: ConsumerGroup, offsets: dict[TopicPartition, int]) -> None:
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
def test_group_with_members_is_in_use(consumer: GroupConsumer, group: ConsumerGroup, code: int) -> None:
    assert not group.is_in_use({HERE: 7})
    assert consumer.committed_rows == [{"here": 7}]

    consumer.refusal = code
    assert group.is_in_use({HERE: 7})


def test_group_whose_coordinator_is_loading_is_retriable(
    consumer: GroupConsumer, group: ConsumerGroup
) -> None:
    consumer.refusal = KafkaError.COORDINATOR_LOAD_IN_PROGRESS

    with pytest.raises(RetriableException, match="consumer group connect-c at here:9092"):
        group.is_in_use({HERE: 7})


IDS = {"a": "id-a", "b": "id-b"}


class Ids:
    def __init__(self, now: Mapping[str, str]) -> None:
        self.now = now
        self.requested: list[list[str]] = []

    def __call__(self, topics: Collection[str]) -> Mapping[str, str]:
        self.requested.append(list(topics))
        return {topic: self.now[topic] for topic in topics if topic in self.now}


def test_topics_with_unchanged_ids_are_not_replaced() -> None:
    ids = Ids(IDS)

    assert replaced_topics(IDS, ids, {"b", "a"}) == {}
    assert ids.requested == [["a", "b"]]


def test_topic_with_another_id_is_replaced() -> None:
    doubts = replaced_topics(IDS, Ids({"a": "id-a", "b": "id-new"}), {"a", "b"})

    assert doubts.keys() == {"b"}
    error = doubts["b"]
    assert isinstance(error, MissingSourceTopicException)
    assert error.topics == ("b",)
    assert str(error) == (
        "topic 'b' was deleted and created again (its id is id-new) while it was read (its id was id-b): "
        "records read since the last commit are not committed"
    )


def test_deleted_topic_is_replaced() -> None:
    doubts = replaced_topics(IDS, Ids({}), {"a"})

    assert "topic 'a' was deleted while it was read" in str(doubts["a"])


def test_topic_ids_without_a_response_are_retriable() -> None:
    def nobody(topics: Collection[str]) -> Mapping[str, str]:
        raise RetriableException("no broker responds")

    doubts = replaced_topics(IDS, nobody, {"a", "b"})

    assert doubts.keys() == {"a", "b"}
    assert all(isinstance(error, RetriableException) for error in doubts.values())


def test_topics_planned_without_ids_are_not_checked() -> None:
    # A plan of an earlier version may have no ids.
    ids = Ids(IDS)

    assert replaced_topics({}, ids, {"a"}) == {}
    assert ids.requested == []
