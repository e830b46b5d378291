"""A Kafka writer before any broker is asked; ``tests/kafka/test_source_writer.py`` has what it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from sinksdk import ConnectException, RetriableException
from sinksdk.engine.options import TaskName
from sinksdk.source import SourceConnectorConfig, SourceRecord
from sinksdk.topics.kafka import KafkaClient, KafkaWriter


def test_a_task_must_not_write_among_its_own_offsets() -> None:
    """As in Connect: what it wrote there would be taken for offsets, or waited for while its transaction is open."""
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
def test_a_transaction_may_be_open_for_longer_than_it_is_meant_to_be(
    settings: dict[str, str], milliseconds: int
) -> None:
    """An interval of 60 s, the default, with Kafka's 60 s would fail whenever the commit comes a moment late."""
    config = SourceConnectorConfig.parse({"name": "c", **settings})
    writer = KafkaWriter.of(config, KafkaClient("host:9092"), TaskName("c", 0))
    assert writer._properties["transaction.timeout.ms"] == milliseconds


class SilentProducer:
    """A producer whose broker never responds; each call takes its time-out on the test's clock."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait

    def init_transactions(self, timeout: float) -> None:
        self._wait(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "timed out", retriable=True))

    commit_transaction = init_transactions

    def produce(self, *_: object, **__: object) -> None:
        """Nothing is delivered."""

    def poll(self, timeout: float) -> None:
        assert timeout >= 0

    def purge(self) -> None:
        """Nothing is kept."""

    flush = poll


@pytest.fixture
def silent() -> tuple[KafkaWriter, list[SilentProducer], list[float]]:
    """A writer, its producers so far, and the clock."""
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
    """It may never find a broker again; nothing is lost with it."""
    writer, made, clock = silent
    for _ in range(6):
        with pytest.raises(RetriableException):
            writer.init()
    assert (len(made), clock) == (3, [60.0])


def test_a_commit_without_a_response_ends_after_the_longest_transaction(
    silent: tuple[KafkaWriter, list[SilentProducer], list[float]],
) -> None:
    """Regression: it was retried on the same producer for as long as errors.retry.timeout, or for ever."""
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
