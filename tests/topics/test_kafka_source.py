"""Asking which ranges hold records: one consumer for all of them; the consumer is a stub."""

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


def answer(number: int, offset: int = 0, error: Any = None) -> Any:
    return SimpleNamespace(
        topic=lambda: "t",
        partition=lambda: number,
        offset=lambda: offset,
        error=lambda: None if error is None else KafkaError(error),
    )


class Consumer:
    """Gives these answers, one at a time; None: it takes as long as it may for nothing."""

    def __init__(self, clock: ManualClock, answers: Sequence[Any]) -> None:
        self.clock = clock
        self.answers = list(answers)
        self.assigned: list[list[Any]] = []
        self.paused: list[int] = []
        self.is_closed = False

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append(partitions)

    def poll(self, timeout: float) -> Any:
        found = self.answers.pop(0) if self.answers else None
        self.clock.advance(max(timeout, 0.0) if found is None else 0.01)
        return found

    def pause(self, partitions: list[Any]) -> None:
        self.paused += [row.partition for row in partitions]

    def close(self) -> None:
        self.is_closed = True


def asked(
    monkeypatch: pytest.MonkeyPatch, partitions: int, answers: Sequence[Any]
) -> tuple[dict[int, int], list[Consumer], float]:
    """What is found of offsets 5 to 9 of so many partitions, the consumers made, and the seconds it took."""
    clock = ManualClock()
    made: list[Consumer] = []

    def bystander(*_: Any) -> Any:
        made.append(Consumer(clock, answers))
        return made[-1]

    monkeypatch.setattr(source, "bystander", bystander)
    began = clock.now()
    ranges = {TopicPartition("t", number): OffsetRange(5, 9) for number in range(partitions)}
    found = source.first_offsets({}, ranges, clock.now)
    return {p.partition: offset for p, offset in found.items()}, made, clock.now() - began


def test_one_consumer_asks_about_all_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: each partition had a consumer of its own, with its connections, one after the other."""
    answers = [answer(n, 7) if n % 2 else answer(n, error=EOF) for n in range(1_000)]
    found, made, seconds = asked(monkeypatch, 1_000, answers)
    assert found == {n: 7 if n % 2 else 9 for n in range(1_000)}
    assert [len(rows) for consumer in made for rows in consumer.assigned] == [1_000]
    assert made[0].paused == list(range(1, 1_000, 2)), "of whom a record has come no more are fetched"
    assert made[0].is_closed
    assert seconds < 20


def test_the_first_answer_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that were fetched with the first one, and a record behind the range, change nothing."""
    found, _, _ = asked(monkeypatch, 2, [answer(0, 6), answer(0, 7), answer(1, 12)])
    assert found == {0: 6, 1: 9}


def test_who_does_not_answer_may_have_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """After five seconds without a word what is left is taken to hold records: it is read."""
    found, made, seconds = asked(monkeypatch, 3, [answer(1, error=EOF)])
    assert found == {0: 5, 1: 9, 2: 5}
    assert made[0].is_closed
    assert 5 <= seconds <= 5.1


def test_who_there_is_no_time_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """While answers come nothing is taken for granted; the others are asked the next time."""
    found, _, seconds = asked(monkeypatch, 10_000, [answer(n, error=EOF) for n in range(10_000)])
    assert 2_900 < len(found) < 3_100
    assert set(found.values()) == {9}
    assert seconds <= 30.1


@pytest.mark.parametrize(
    ("error", "first"), [(KafkaError.TOPIC_AUTHORIZATION_FAILED, 5), (KafkaError._TRANSPORT, 5)]
)
def test_an_error_is_no_proof_of_a_gap(monkeypatch: pytest.MonkeyPatch, error: int, first: int) -> None:
    """Denied, or away: the range is read, and whoever reads it says what is wrong."""
    found, _, _ = asked(monkeypatch, 1, [answer(0, error=error)])
    assert found == {0: first}


def test_what_concerns_no_partition_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is away is told of as well; another one answers."""
    away = answer(0, error=KafkaError._ALL_BROKERS_DOWN)
    away.topic, away.partition = lambda: None, lambda: None
    found, _, _ = asked(monkeypatch, 1, [away, answer(0, error=EOF)])
    assert found == {0: 9}
