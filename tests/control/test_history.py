"""The recent history of a connector: counted once, kept for six hours, written sparingly."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.history import (
    FAILURES,
    KEPT,
    Amounts,
    Growth,
    HistoryKeeper,
    together,
    with_amounts,
    with_failures,
)
from sinksdk.model.outcome import End, Failure, PartitionOutcome, SourceTaskOutcome
from sinksdk.store.base import Lost, Stored
from sinksdk.store.reports import Bucket, ConnectorHistory, SourceProgress
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
NOON = 1_700_000_040.0  # a whole minute


@dataclass(frozen=True)
class Report:
    where: TopicPartition | int
    amounts: Amounts
    failure: Failure | None = None


def amounts(*reports: Report) -> dict[TopicPartition | int, Amounts]:
    return {report.where: report.amounts for report in reports}


def failures(*reports: Report) -> dict[TopicPartition | int, Failure]:
    return {report.where: report.failure for report in reports if report.failure}


def both(
    report: Report,
) -> tuple[dict[TopicPartition | int, Amounts], dict[TopicPartition | int, Failure]]:
    return amounts(report), failures(report)


def progress(records: int, tail: int = 0, *, partition: int = 0, files: int = 0) -> Report:
    where, counts = TopicPartition("t", partition), {"files": files, "bytes": 10 * files, "withdrawn": 1}
    outcome = PartitionOutcome(where, records - tail, records, records, tail, records, counts=counts)
    return Report(where, Amounts.of(outcome))


def outcome(partition: TopicPartition, message: str | None = None, records: int = 0) -> Report:
    failure = Failure("ValueError", message, f"Traceback\n{message}") if message else None
    outcome = PartitionOutcome(partition, records, records, records, 0, records, failure)
    return Report(partition, Amounts.of(outcome), failure)


def ended(task: int, records: int, transactions: int, message: str | None = None) -> Report:
    failure = Failure("ValueError", message, f"Traceback\n{message}") if message else None
    end = End.FAILED if failure else End.STOPPED
    return Report(task, Amounts.of_task(SourceTaskOutcome(end, records, transactions, failure)), failure)


# -- counting ----------------------------------------------------------------------------------------


def test_only_committed_records_and_files_count() -> None:
    growth = Growth()
    assert growth.of(amounts(progress(100, tail=100))) == Amounts()
    assert growth.of(amounts(progress(150, tail=30, files=2))) == Amounts(120, 2, 20)


def test_an_outcome_counts_only_what_progress_has_not_counted() -> None:
    growth = Growth()
    growth.of(amounts(progress(100), progress(7, partition=1)))
    assert growth.of(amounts(progress(100), progress(7, partition=1))) == Amounts()
    assert growth.of(amounts(outcome(P0, records=110), outcome(P1, records=7))) == Amounts(10)


def test_counts_of_a_new_generation_start_at_zero() -> None:
    growth = Growth()
    growth.of(amounts(progress(100, files=1)))
    growth.begin()
    assert growth.of(amounts(progress(150, files=3))) == Amounts(150, 3, 30)


def test_counts_of_another_attempt_start_at_zero() -> None:
    growth = Growth()
    growth.of(amounts(progress(100, files=5)))
    assert growth.of(amounts(progress(20, files=1))) == Amounts(20, 1, 10)


def test_the_next_attempt_of_a_sink_continues_its_record_count_but_not_its_file_count() -> None:
    growth = Growth()
    growth.of(amounts(progress(100, files=5)))
    assert growth.of(amounts(progress(130, files=1))) == Amounts(30, 1, 10)


def test_tasks_of_a_source_count_records_and_transactions() -> None:
    growth = Growth()
    running = Report(0, Amounts.of_task(SourceProgress(state="RUNNING", records=10, transactions=2)))
    assert growth.of(amounts(running, ended(1, 5, 1))) == Amounts(15, transactions=3)
    assert growth.of(amounts(ended(0, 12, 3), ended(1, 5, 1))) == Amounts(2, transactions=1)


# -- the history -------------------------------------------------------------------------------------


def test_a_minute_has_one_bucket() -> None:
    history = with_amounts(ConnectorHistory(), NOON, Amounts(1, 2, 3))
    history = with_amounts(history, NOON + 59.9, Amounts(10, 20, 30))
    history = with_amounts(history, NOON + 180, Amounts(5))

    assert history.buckets == (
        Bucket(start=int(NOON), records=11, files=22, bytes=33),
        Bucket(start=int(NOON) + 180, records=5),
    )


def test_history_keeps_the_buckets_of_six_hours() -> None:
    history = ConnectorHistory()
    for minute in range(KEPT + 40):
        history = with_amounts(history, NOON + 60 * minute, Amounts(1))
    assert (len(history.buckets), history.buckets[0].start) == (KEPT, NOON + 60 * 40)

    later = with_amounts(history, NOON + 100 * 3600, Amounts(1))
    assert [bucket.start for bucket in later.buckets] == [NOON + 100 * 3600]


def test_buckets_keep_their_order_when_the_clock_jumps_back() -> None:
    history = with_amounts(ConnectorHistory(), NOON, Amounts(1))
    history = with_amounts(history, NOON - 600, Amounts(2))
    assert [bucket.records for bucket in history.buckets] == [2, 1]


def test_repeated_failures_are_one_row_with_a_count() -> None:
    # Failures are ordered by their latest occurrence, which supplies the partition and the end of the trace.
    history = with_failures(ConnectorHistory(), NOON, failures(outcome(P0, "a"), outcome(P1, "b")))
    history = with_failures(history, NOON + 5, failures(outcome(P1, "a"), outcome(P0)))

    assert [(f.message, f.times, f.partition, f.at) for f in history.failures] == [
        ("b", 1, 1, NOON),
        ("a", 2, 1, NOON + 5),
    ]
    assert history.failures[0].trace == "Traceback\nb"


def test_a_failure_of_a_source_names_its_task() -> None:
    history = with_failures(
        ConnectorHistory(), NOON, failures(ended(2, 0, 0, "the file is gone"), ended(1, 3, 1))
    )

    (failure,) = history.failures
    assert (failure.task, failure.topic, failure.message) == (2, "", "the file is gone")


def test_number_and_size_of_failures_are_bounded() -> None:
    history = ConnectorHistory()
    for number in range(FAILURES + 5):
        history = with_failures(history, NOON, failures(outcome(P0, f"{number} {'x' * 10_000}")))
    assert len(history.failures) == FAILURES
    assert history.failures[-1].message.startswith("24 ")
    assert len(history.failures[-1].trace) == 4_000


def test_merged_histories_have_the_sums_and_failures_of_both() -> None:
    a = with_amounts(ConnectorHistory(), NOON, Amounts(1))
    b = with_failures(with_amounts(ConnectorHistory(), NOON, Amounts(2)), NOON, failures(outcome(P0, "a")))
    both = together(a, b)
    assert both.buckets == (Bucket(start=int(NOON), records=3),)
    assert both.failures == b.failures


def test_a_failure_in_both_merged_histories_is_one_row() -> None:
    # A failure that equals the one of the previous driver increments the count, and adds no row.
    a = with_failures(ConnectorHistory(), NOON, failures(outcome(P0, "a"), outcome(P1, "b")))
    b = with_failures(ConnectorHistory(), NOON + 9, failures(outcome(P1, "a")))

    assert [(f.message, f.times, f.partition, f.at) for f in together(a, b).failures] == [
        ("b", 1, 1, NOON),
        ("a", 2, 1, NOON + 9),
    ]


# -- keeping it --------------------------------------------------------------------------------------


class Clock(ManualClock):
    def time(self) -> float:
        return NOON - 1_000 + self.now()


class CountingStore(MemoryStore):
    def __init__(self) -> None:
        super().__init__(patience=0.01, pause=0.001)
        self.writes = 0
        self.is_down = False
        self.loses_answers = False

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if self.is_down:
            raise Lost("down")
        self.writes += 1
        done = super()._write(key, stored, if_version)
        if self.loses_answers:
            raise Lost("no answer")
        return done

    def _read(self, key: str) -> Stored | None:
        if self.is_down or self.loses_answers:
            raise Lost("down")
        return super()._read(key)


@pytest.fixture
def store() -> CountingStore:
    made = CountingStore()
    Herder(made).create("c", {"topics": "t"})
    made.writes = 0
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


def records(store: MemoryStore) -> int:
    return sum(bucket.records for bucket in Herder(store).history("c").buckets)


def test_a_connector_without_commits_has_an_empty_history(store: CountingStore) -> None:
    assert Herder(store).history("c") == ConnectorHistory()


def test_history_is_written_at_most_every_five_seconds_and_at_the_end_of_a_generation(
    store: CountingStore, clock: Clock
) -> None:
    # Writes happen at most every five seconds while a generation runs, and at its end.
    keeper = HistoryKeeper(store, "c", clock)
    for second in range(60):
        keeper.progress(amounts(progress(10 * second)))
        clock.advance(1)
    assert store.writes == 12
    keeper.ended(*both(outcome(P0, records=1_000)))
    assert (store.writes, records(store)) == (13, 1_000)

    for _ in range(60):
        clock.advance(1)
        keeper.progress(amounts(outcome(P0, records=1_000)))
    assert store.writes == 13


def test_history_is_written_less_often_to_a_store_with_paid_requests(clock: Clock) -> None:
    class Far(CountingStore):
        closing_poll = 5.0

    store = Far()
    keeper = HistoryKeeper(store, "c", clock)
    for second in range(60):
        keeper.progress(amounts(progress(second + 1)))
        clock.advance(1)
    assert store.writes == 2


def test_the_next_driver_continues_the_history(store: CountingStore, clock: Clock) -> None:
    HistoryKeeper(store, "c", clock).ended(*both(outcome(P0, "no", records=5)))
    HistoryKeeper(store, "c", clock).ended(*both(outcome(P0, records=2)))

    assert records(store) == 7
    assert [failure.message for failure in Herder(store).history("c").failures] == ["no"]


def test_an_outage_of_the_store_loses_no_history(
    store: CountingStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    # The keeper repeats a lost write once, later; the driver continues meanwhile.
    keeper = HistoryKeeper(store, "c", clock)
    keeper.progress(amounts(progress(5)))
    store.is_down = True
    for total in (6, 7, 8):
        clock.advance(10)
        keeper.progress(amounts(progress(total)))
    store.is_down = False
    clock.advance(10)
    keeper.progress(amounts(progress(8)))

    assert records(store) == 8
    lines = [line for line in caplog.records if line.name == "sinksdk.control.history"]
    assert [line for line in lines if line.levelno >= logging.WARNING] == []


def test_a_history_write_whose_response_is_lost_counts_once(store: CountingStore, clock: Clock) -> None:
    keeper = HistoryKeeper(store, "c", clock)
    keeper.progress(amounts(progress(5)))
    store.loses_answers = True
    clock.advance(10)
    keeper.progress(amounts(progress(9)))
    store.loses_answers = False
    clock.advance(10)
    keeper.progress(amounts(progress(9)))

    assert records(store) == 9


def test_a_zombies_history_is_overwritten(store: CountingStore, clock: Clock) -> None:
    zombie, keeper = HistoryKeeper(store, "c", clock), HistoryKeeper(store, "c", clock)
    zombie.ended(*both(outcome(P0, records=5)))
    keeper.ended(*both(outcome(P0, records=2)))
    zombie.ended(*both(outcome(P0, records=100)))
    keeper.ended(*both(outcome(P0, records=3)))

    assert records(store) == 8
