from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from sinksdk import ConnectorConfig, RetriableException
from sinksdk.topics.kafka import KafkaClient, own_topics
from sinksdk.topics.kafka.own_topics import ensure_dead_letter_topic


class Silent:
    def __init__(self, _: object) -> None:
        pass

    def list_topics(self, *, timeout: float) -> Any:
        assert timeout
        return SimpleNamespace(topics={}, brokers={1: None})

    def create_topics(self, topics: Any, *, operation_timeout: float) -> dict[str, Future[Any]]:
        assert operation_timeout
        return {topic.topic: Future() for topic in topics}


def test_topic_creation_without_a_response_is_retriable(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: a bare TimeoutError was raised.
    monkeypatch.setattr(own_topics, "AdminClient", Silent)
    monkeypatch.setattr(own_topics, "_TIMEOUT", 0.01)
    raw = {"name": "c", "topics": "t", "errors.deadletterqueue.topic.name": "bad"}

    with pytest.raises(
        RetriableException,
        match=r"topic 'bad' .* cannot be .*created at here:9092: no response within .*check that",
    ):
        ensure_dead_letter_topic(ConnectorConfig.parse(raw), KafkaClient("here:9092"))
