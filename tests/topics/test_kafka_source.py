from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from sinksdk import OffsetRange, TopicPartition
from sinksdk.testing.faults import ManualClock
from sinksdk.topics.kafka import source

EOF = KafkaError._PARTITION_EOF


def response(number: int, offset: int = 0, error: Any = None) -> Any:
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: number,
        offset=lambda: offset,
        error=lambda: None if error is None else KafkaError(error),
    )


class Consumer:
    def __init__(self, clock: ManualClock, responses: Sequence[Any]) -> None:
        self.clock = clock
        self.responses = list(responses)
        self.assigned: list[list[Any]] = []
        self.paused: list[int] = []
        self.is_closed = False

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append(partitions)

    def poll(self, timeout: float) -> Any:
        found = self.responses.pop(0) if self.responses else None
        self.clock.advance(max(timeout, 0.0) if found is None else 0.01)
        return found

    def pause(self, partitions: list[Any]) -> None:
        self.paused += [row.partition for row in partitions]

    def close(self) -> None:
        self.is_closed = True


def probe(
    monkeypatch: pytest.MonkeyPatch, partitions: int, responses: Sequence[Any]
) -> tuple[dict[int, int], list[Consumer], float]:
    clock = ManualClock()
    made: list[Consumer] = []

    def bystander(*_: Any) -> Any:
        made.append(Consumer(clock, responses))
        return made[-1]

    monkeypatch.setattr(source, "bystander", bystander)
    began = clock.now()
    ranges = {TopicPartition("t", number): OffsetRange(5, 9) for number in range(partitions)}
    found = source.first_offsets({}, ranges, clock.now)
    return {p.partition: offset for p, offset in found.items()}, made, clock.now() - began


def test_one_consumer_probes_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    # Regression: each partition had a consumer and its connections, one after the other.
    responses = [response(n, 7) if n % 2 else response(n, error=EOF) for n in range(1_000)]
    found, made, seconds = probe(monkeypatch, 1_000, responses)
    assert found == {n: 7 if n % 2 else 9 for n in range(1_000)}
    assert [len(rows) for consumer in made for rows in consumer.assigned] == [1_000]
    assert made[0].paused == list(range(1, 1_000, 2)), "of whom a record has come no more are fetched"
    assert made[0].is_closed
    assert seconds < 20


def test_first_response_of_a_partition_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, _ = probe(monkeypatch, 2, [response(0, 6), response(0, 7), response(1, 12)])
    assert found == {0: 6, 1: 9}


def test_partitions_without_a_response_are_assumed_to_have_records(monkeypatch: pytest.MonkeyPatch) -> None:
    found, made, seconds = probe(monkeypatch, 3, [response(1, error=EOF)])
    assert found == {0: 5, 1: 9, 2: 5}
    assert made[0].is_closed
    assert 5 <= seconds <= 5.1


def test_partitions_without_a_response_in_time_are_omitted(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _, seconds = probe(monkeypatch, 10_000, [response(n, error=EOF) for n in range(10_000)])
    assert 2_900 < len(found) < 3_100
    assert set(found.values()) == {9}
    assert seconds <= 30.1


@pytest.mark.parametrize(
    ("error", "first"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 5), (KafkaError._TRANSPORT, 5)]
)
def test_partition_with_an_error_is_assumed_to_have_records(
    monkeypatch: pytest.MonkeyPatch, error: int, first: int
) -> None:
    found, _, _ = probe(monkeypatch, 1, [response(0, error=error)])
    assert found == {0: first}


def test_broker_error_does_not_count_as_a_partitions_response(monkeypatch: pytest.MonkeyPatch) -> None:
    away = response(0, error=KafkaError._ALL_BROKERS_DOWN)
    away.topic, away.partition = lambda: None, lambda: None
    found, _, _ = probe(monkeypatch, 1, [away, response(0, error=EOF)])
    assert found == {0: 9}
