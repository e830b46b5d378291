"""The topic of dead letters, where the cluster does not say that it was made; the client is a stub."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from sinksdk import ConnectorConfig, RetriableException
from sinksdk.topics.kafka import KafkaClient, own_topics
from sinksdk.topics.kafka.own_topics import ensure_dead_letter_topic


class Silent:
    """Takes the request and never answers."""

    def __init__(self, _: object) -> None:
        pass

    def list_topics(self, *, timeout: float) -> Any:
        assert timeout
        return SimpleNamespace(topics={}, brokers={1: None})

    def create_topics(self, topics: Any, *, operation_timeout: float) -> dict[str, Future[Any]]:
        assert operation_timeout
        return {topic.topic: Future() for topic in topics}


def test_a_cluster_that_never_says_whether_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: a bare TimeoutError, without a word."""
    monkeypatch.setattr(own_topics, "AdminClient", Silent)
    monkeypatch.setattr(own_topics, "_TIMEOUT", 0.01)
    raw = {"name": "c", "topics": "t", "errors.deadletterqueue.topic.name": "bad"}

    with pytest.raises(
        RetriableException,
        match=r"topic 'bad' .* cannot be .*created at here:9092: no response within .*check that",
    ):
        ensure_dead_letter_topic(ConnectorConfig.parse(raw), KafkaClient("here:9092"))
