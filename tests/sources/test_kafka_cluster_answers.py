"""What becomes of a cluster's answers that are late, or not given; the clients are stubs."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sinksdk import ConnectException, RetriableException
from sinksdk.sources.kafka import cluster as module
from sinksdk.sources.kafka.cluster import Cluster

TOPICS = [f"t{number}" for number in range(12)]


def topic(name: str, error: int | None = None) -> Any:
    return SimpleNamespace(
        topic=name, partitions={0: None}, error=None if error is None else KafkaError(error)
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


class Admin:
    """Answers when it is told to."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.ready: dict[str, str] = {}
        self.answers: dict[str, Future[Any]] = {}

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
