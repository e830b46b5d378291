"""What becomes of a cluster's answers that are late, or not given; the clients are stubs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinksdk import ConnectException, OffsetRange, RetriableException, TopicPartition
from sinksdk.topics.kafka import cluster as module
from sinksdk.topics.kafka.cluster import Cluster

TOPICS = [f"t{number}" for number in range(12)]


def topic(name: str, error: int | None = None, leaders: Sequence[int] = (1,)) -> Any:
    return SimpleNamespace(
        topic=name,
        partitions={number: SimpleNamespace(leader=leader) for number, leader in enumerate(leaders)},
        error=None if error is None else KafkaError(error),
    )


class Consumer:
    """Knows these topics; a list of all of them leaves out those the user may not describe."""

    def __init__(self, denied: str = "", gone: str = "") -> None:
        self.denied, self.gone = denied, gone  # names of one topic
        self.asked: list[str | None] = []

    def list_topics(self, name: str | None = None, *, timeout: float) -> Any:
        assert timeout
        self.asked.append(name)
        if name is None:
            hidden = {self.denied, self.gone}
            return SimpleNamespace(topics={name: topic(name) for name in TOPICS if name not in hidden})
        error = None
        if name == self.denied:
            error = KafkaError.TOPIC_AUTHORIZATION_FAILED
        elif name == self.gone:
            error = KafkaError.UNKNOWN_TOPIC_OR_PART
        return SimpleNamespace(topics={name: topic(name, error)})


class Led(Consumer):
    """One topic of four partitions: one has no leader, one loses its while it is asked, the others have one."""

    def __init__(self, leaders: Sequence[int] = (1, -1, 1, 1), loses: int = 2) -> None:
        super().__init__()
        self.leaders, self.loses = leaders, loses

    def list_topics(self, name: str | None = None, *, timeout: float) -> Any:
        assert name
        return SimpleNamespace(topics={name: topic(name, leaders=self.leaders)})

    def offsets_for_times(self, rows: Any, timeout: float) -> list[Any]:
        if any(self.leaders[row.partition] == -1 for row in rows):
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))  # as librdkafka: none is answered
        lost = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
        return [
            SimpleNamespace(
                topic=row.topic,
                partition=row.partition,
                offset=0 if row.offset == -2 else 7,
                error=lost if row.partition == self.loses else None,
            )
            for row in rows
        ]


def test_a_partition_without_a_leader_is_left_out_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: one of 10,000 stopped them all."""
    asking = cluster(monkeypatch, Led())
    found = asking.available(asking.partitions(["t"])["t"])

    assert found == {TopicPartition("t", n): OffsetRange(0, 7) for n in (0, 3)}
    assert found.unavailable == {TopicPartition("t", n) for n in (1, 2)}


def test_a_cluster_without_any_leader_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing can be read: that is an outage, not an empty topic."""
    asking = cluster(monkeypatch, Led(leaders=(-1, -1)))

    with pytest.raises(RetriableException, match="no partition has a leader"):
        asking.available(asking.partitions(["t"])["t"])


class Admin:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ready: dict[str, str] = {}
        self.answers: dict[str, Future[Any]] = {}

    def __len__(self) -> int:
        """As librdkafka's: of what waits to be sent."""
        return 0

    def describe_topics(self, topics: Any, *, request_timeout: float) -> dict[str, Future[Any]]:
        assert request_timeout
        names = list(topics.topic_names)
        self.asked.append(names)
        answers: dict[str, Future[Any]] = {name: Awaited(name, self.ready) for name in names}
        self.answers |= answers
        return answers

    def answer(self, name: str, topic_id: str) -> None:
        self.answers[name].set_result(SimpleNamespace(topic_id=topic_id))


class Awaited(Future[Any]):
    """An answer that comes while it is waited for, if it is ready then."""

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
    monkeypatch.setattr(module, "_TIMEOUT", 0.01)
    return Cluster({"bootstrap.servers": "here:9092"})


def test_ids_are_asked_for_over_one_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each question made a client, and connected anew, before each commit of each partition."""
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


def test_a_topic_that_may_not_be_described_is_not_taken_for_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: with more than ten topics it was said not to exist, and to be created."""
    with pytest.raises(
        ConnectException, match=r"topic t3: .*check the client properties and the user's rights"
    ):
        cluster(monkeypatch, Consumer(denied="t3")).partitions(TOPICS)


def test_many_topics_are_one_question_and_one_more_for_each_that_is_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that is not there is left out as before."""
    consumer = Consumer(gone="t3")

    assert len(cluster(monkeypatch, consumer).partitions(TOPICS)) == 11
    assert consumer.asked == [None, "t3"]


def test_ids_that_came_before_the_last_one_are_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: while one topic's answer was awaited, another one was deleted and made again unseen."""
    admin = Admin()
    asking = cluster(monkeypatch, Consumer(), admin)

    with pytest.raises(RetriableException, match="id of topic t0"):
        asking.topic_ids(["t0", "t1"])
    admin.answer("t1", "old")
    with pytest.raises(RetriableException, match="id of topic t0"):
        asking.topic_ids(["t0", "t1"])
    assert admin.asked == [["t0", "t1"], ["t1"]]
    admin.ready["t0"] = "old"
    with pytest.raises(RetriableException, match="id of topic t1"):
        asking.topic_ids(["t0", "t1"])
    admin.ready |= {"t0": "new", "t1": "new"}

    assert asking.topic_ids(["t0", "t1"]) == {"t0": "new", "t1": "new"}
    assert admin.asked == [["t0", "t1"], ["t1"], ["t0"]], "a question without an answer is not asked twice"
