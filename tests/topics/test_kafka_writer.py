from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinksdk import ConnectException, RetriableException
from sinksdk.engine.options import TaskName
from sinksdk.source import SourceConnectorConfig, SourceRecord
from sinksdk.topics.kafka import KafkaClient, KafkaWriter


def test_record_for_the_offsets_topic_is_refused() -> None:
    # The record would be read as an offset, and its open transaction would make readers wait.
    writer = KafkaWriter({}, "g-files-0", "files", "offsets")
    with pytest.raises(
        ConnectException,
        match=r"connector files returned a record for topic offsets, which stores its source",
    ):
        writer.send(SourceRecord({}, {}, "offsets", b"1"))


@pytest.mark.parametrize(
    ("settings", "milliseconds"),
    [
        ({}, 60_000),
        ({"transaction.boundary": "interval"}, 120_000),
        ({"transaction.boundary": "interval", "transaction.boundary.interval.ms": "1000"}, 60_000),
        ({"transaction.boundary": "interval", "producer.override.transaction.timeout.ms": "90000"}, 90_000),
        ({"producer.override.transaction.timeout.ms": "5000"}, 5_000),
    ],
)
def test_transaction_timeout_exceeds_the_interval(settings: dict[str, str], milliseconds: int) -> None:
    # With an interval and a time-out of 60 s each, a slightly late commit would fail.
    config = SourceConnectorConfig.parse({"name": "c", **settings})
    writer = KafkaWriter.of(config, KafkaClient("host:9092"), TaskName("c", 0))
    assert writer._properties["transaction.timeout.ms"] == milliseconds


class SilentProducer:
    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait

    def init_transactions(self, timeout: float) -> None:
        self._wait(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    commit_transaction = init_transactions

    def produce(self, *_: object, **__: object) -> None:
        pass

    def poll(self, timeout: float) -> None:
        assert timeout >= 0

    def purge(self) -> None:
        pass

    flush = poll


@pytest.fixture
def silent() -> tuple[KafkaWriter, list[SilentProducer], list[float]]:
    made: list[SilentProducer] = []
    clock = [0.0]

    def make(_: dict[str, Any]) -> Any:
        def wait(seconds: float) -> None:
            clock[0] += seconds

        made.append(SilentProducer(wait))
        return made[-1]

    writer = KafkaWriter({}, "g-files-0", "files", "offsets", make_producer=make, now=lambda: clock[0])
    return writer, made, clock


def test_a_producer_without_responses_is_replaced_before_its_first_transaction(
    silent: tuple[KafkaWriter, list[SilentProducer], list[float]],
) -> None:
    writer, made, clock = silent
    for _ in range(6):
        with pytest.raises(RetriableException):
            writer.init()
    assert (len(made), clock) == (3, [60.0])


def test_commit_without_a_response_fails_after_the_transaction_timeout(
    silent: tuple[KafkaWriter, list[SilentProducer], list[float]],
) -> None:
    # Regression: the commit was retried on the same producer until errors.retry.timeout, or without end.
    writer, made, clock = silent
    with pytest.raises(RetriableException):
        writer.init()
    clock[0] += 100.0
    writer._silent_since = None
    for _ in range(5):
        with pytest.raises(RetriableException):
            writer.commit([])
    with pytest.raises(
        ConnectException, match=r"for 60 s, longer than 'producer.override.transaction.timeout.ms' \(60 s\)"
    ) as caught:
        writer.commit([])
    assert not isinstance(caught.value, RetriableException)
    assert len(made) == 1
