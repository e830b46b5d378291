"""The engine's measurements of a task: exact numbers, on a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from sinksdk import (
    ClosingReason,
    ConnectException,
    DataException,
    OffsetRange,
    RetriableException,
    SinkRecords,
    SinkTaskContext,
    Token,
    TopicPartition,
)
from sinksdk.engine import EngineOptions
from sinksdk.engine.retry import RetryPolicy
from sinksdk.model.measures import ErrorCounts, Level, TaskMeasures, Timing
from sinksdk.testing import ManualClock, SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Letters, Sink, TwoPhaseSink, World

EPOCH = 1_000_000.0
"""The time at which tests read the measures."""


class Slow(Sink):
    def __init__(self, clock: ManualClock, **seconds: float) -> None:
        super().__init__()
        self.clock = clock
        self.seconds = seconds

    def fault(self, method: str) -> None:
        self.clock.advance(self.seconds.get(method, 0.0))
        super().fault(method)


class SlowBuffering(Slow, BufferingSink):
    """A slow sink that writes files of three records."""


def started(clock: ManualClock, sink: Sink, **settings: Any) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, clock=clock, **settings)
    harness.start()
    return harness


def measures(harness: SinkTaskHarness) -> TaskMeasures:
    return harness.worker.measures(EPOCH)


def test_a_task_without_records_has_zero_measures() -> None:
    found = measures(SinkTaskHarness(Sink))

    assert found == TaskMeasures()
    assert (found.puts.mean, found.active.mean) == (None, None)


def test_puts_are_counted_with_their_records_and_times() -> None:
    clock = ManualClock()
    harness = started(clock, Slow(clock, put=1.0))
    harness.assign(P0)
    harness.deliver(P0, [b"a", b"b"])
    harness.deliver(P0, [b"c"])

    found = measures(harness)
    assert found.puts == Timing(count=2, seconds=2.0, longest=1.0)
    assert (found.records_read, found.records_sent, found.largest_batch) == (3, 3, 2)
    assert found.puts.mean == 1.0


def test_time_is_counted_by_phase() -> None:
    clock = ManualClock()
    harness = started(clock, Slow(clock, start=1.0, open=2.0, put=3.0, pre_commit=4.0, close=5.0, stop=6.0))
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.stop()

    spent = {phase: seconds for phase, seconds in measures(harness).seconds.items() if seconds}
    assert spent == {
        "start": 1.0,
        "open": 2.0,
        "put": 3.0,
        "pre_commit": 4.0,
        "close": 5.0,
        "stop": 6.0,
    }


def test_the_time_of_calls_that_raise_is_counted() -> None:
    clock = ManualClock()
    sink = Slow(clock, put=3.0)
    sink.faults["put"].append(ConnectException("no"))
    harness = started(clock, sink)
    harness.assign(P0)
    harness.deliver(P0, [b"a"])

    found = measures(harness)
    assert found.seconds["put"] == 3.0
    assert (found.puts.count, found.records_read, found.records_sent) == (0, 1, 0)


def test_records_committed_before_are_not_counted_as_read() -> None:
    harness = SinkTaskHarness(Sink, committed={P0: 2})
    harness.start()
    harness.assign(P0)
    harness._next[P0] = 0
    harness.deliver(P0, [b"a", b"b", b"c"])

    assert measures(harness).records_read == 1


def test_active_records_are_those_read_and_not_committed() -> None:
    harness = started(ManualClock(), BufferingSink())
    harness.assign(P0, P1)
    harness.deliver(P0, [b"0", b"1", b"2", b"3"])
    harness.deliver(P1, [b"0", b"1"])
    assert measures(harness).active == Level(now=6, largest=6, total=10, looks=2)
    harness.commit()
    assert measures(harness).active.now == 3
    harness.revoke(P0)
    assert measures(harness).active.now == 2
    harness.lose(P1)

    found = measures(harness).active
    assert (found.now, found.largest, found.mean) == (0, 6, 5.0)


def test_a_batch_that_waits_for_a_retry_counts_as_active() -> None:
    sink = Sink()
    sink.faults["put"].append(RetriableException("later"))
    harness = started(ManualClock(), sink)
    harness.assign(P0)
    harness.deliver(P0, [b"a", b"b"])
    harness.commit()
    assert measures(harness).active.now == 2
    harness.advance(1.0)
    harness.commit()

    assert measures(harness).active.now == 0


def test_commits_are_timed_from_pre_commit_until_they_are_durable() -> None:
    clock = ManualClock()
    harness = started(clock, SlowBuffering(clock, pre_commit=2.0, publish=9.0))
    harness.assign(P0)
    harness.deliver(P0, [b"0", b"1"])
    harness.commit()
    harness.deliver(P0, [b"2"])
    clock.advance(1.0)
    harness.commit()

    found = measures(harness)
    assert found.commits == Timing(count=2, seconds=4.0, longest=2.0)
    assert (found.commit_writes, found.commit_failures) == (1, 0)


def test_a_commit_without_delivered_records_is_not_counted() -> None:
    harness = started(ManualClock(), Sink())
    harness.assign(P0)
    harness.commit()

    assert measures(harness).commits == Timing()


def test_a_commit_whose_pre_commit_raises_counts_as_failed() -> None:
    clock = ManualClock()
    sink = Slow(clock, pre_commit=2.0)
    sink.faults["pre_commit"].append(ConnectException("no"))
    harness = started(clock, sink)
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.commit()

    found = measures(harness)
    assert (found.commits, found.commit_failures, found.commit_writes) == (Timing(), 1, 0)
    assert found.errors == ErrorCounts(record_errors=1, last=EPOCH)


def test_a_commit_refused_by_the_store_counts_as_failed() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.fence()
    with pytest.raises(ConnectException):
        harness.commit()

    assert (measures(harness).commit_failures, measures(harness).commit_writes) == (1, 0)


def test_committing_the_end_of_a_range_counts_as_a_write_only() -> None:
    harness = started(ManualClock(), Sink())
    harness.assign(P0, limits=OffsetRange(0, 5))
    harness.deliver(P0, [b"a"])
    harness.commit()
    harness.finish(P0)

    found = measures(harness)
    assert harness.committed[P0].offset == 5
    assert (found.commits.count, found.commit_writes) == (1, 2)


def test_closing_time_is_counted_by_phase() -> None:
    clock = ManualClock()
    harness = started(clock, Slow(clock, put=1.0, pre_commit=2.0, close=0.5, stop=4.0))
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.commit()
    harness.deliver(P0, [b"b"])
    asked = clock.now()
    clock.advance(0.25)
    harness.worker.close(ClosingReason.REBALANCE, asked=asked)

    found = measures(harness)
    spent = {phase: seconds for phase, seconds in found.closing_seconds.items() if seconds}
    assert spent == {"close_latency": 0.25, "pre_commit": 2.0, "close": 0.5}
    assert (found.closings, found.seconds["pre_commit"], found.seconds["close_latency"]) == (1, 4.0, 0.25)


def test_a_planned_end_does_not_count_as_a_close_request() -> None:
    harness = started(ManualClock(), Sink())
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.finish(P0, ClosingReason.DUE)

    assert (measures(harness).closings, measures(harness).closing_seconds) == (0, {})


class SlowTwoPhase(TwoPhaseSink):
    def __init__(self, world: World, clock: ManualClock) -> None:
        super().__init__(world)
        self.clock = clock

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.clock.advance(2.0)
        super().publish(partition, tokens)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.clock.advance(3.0)
        super().discard(partition, tokens)


def test_publish_time_includes_delays_and_retries_are_counted() -> None:
    clock = ManualClock()
    sink = SlowTwoPhase(World(), clock)
    sink.faults["publish"].append(RetriableException("not yet"))
    harness = started(clock, sink)
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.revoke(P0)

    found = measures(harness)
    assert found.seconds["publish"] == pytest.approx(4.3)
    assert found.errors == ErrorCounts(retries=1)
    assert found.commits.longest < 1.0


def test_retries_of_a_batch_are_counted() -> None:
    sink = Sink()
    sink.faults["put"].extend([RetriableException("a"), RetriableException("b")])
    harness = started(ManualClock(), sink)
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.advance(1.0)
    harness.advance(1.0)

    errors = measures(harness).errors
    assert (errors.record_failures, errors.retries, errors.record_errors) == (2, 2, 0)
    assert errors.last == EPOCH - 1.0
    assert measures(harness).records_read == 1


def test_a_retry_after_the_timeout_counts_as_an_error() -> None:
    sink = Sink()
    sink.faults["put"].extend([RetriableException("a"), RetriableException("b")])
    harness = started(ManualClock(), sink, options=EngineOptions(retry=RetryPolicy(timeout=0.3)))
    harness.assign(P0)
    harness.deliver(P0, [b"a"])
    harness.advance(0.3)

    errors = measures(harness).errors
    assert (errors.record_failures, errors.retries, errors.record_errors) == (2, 1, 1)


class Reporting(Sink):
    """Reports every record with an odd offset."""

    def initialize(self, context: SinkTaskContext) -> None:
        super().initialize(context)
        self.reporter = context.errant_record_reporter()

    def put(self, records: SinkRecords) -> None:
        assert self.reporter is not None
        for record in records:
            if record.offset % 2:
                self.reporter.report(record, DataException("odd"))


def test_reported_records_count_as_failures_and_skipped_records() -> None:
    letters = Letters()
    options = EngineOptions(tolerate_errors=True, log_errors=True)
    harness = started(ManualClock(), Reporting(), options=options, dead_letters=letters)
    harness.assign(P0)
    harness.deliver(P0, [b"%d" % number for number in range(5)])

    assert measures(harness).errors == ErrorCounts(
        record_failures=2, records_skipped=2, errors_logged=2, dead_letters=2, last=EPOCH
    )


def test_an_untolerated_record_counts_once_as_an_error() -> None:
    # With errors.tolerance=none, the report counts as the failure. The exception that put raises afterwards
    # does not count as another one.
    harness = started(ManualClock(), Reporting(), dead_letters=Letters())
    harness.assign(P0)
    harness.deliver(P0, [b"0", b"1", b"2"])

    errors = measures(harness).errors
    assert (errors.record_failures, errors.record_errors, errors.records_skipped) == (1, 1, 0)


def test_lost_dead_letters_are_counted() -> None:
    letters = Letters(automatic=False)
    options = EngineOptions(tolerate_errors=True)
    harness = started(ManualClock(), Reporting(), options=options, dead_letters=letters)
    harness.assign(P0)
    harness.deliver(P0, [b"0", b"1", b"2", b"3"])
    letters.futures[0].set_result(None)
    letters.futures[1].set_exception(ConnectException("broker away"))
    harness.commit()

    errors = measures(harness).errors
    assert (errors.dead_letters, errors.dead_letter_failures) == (2, 1)


def converted(topic: str, data: bytes | None) -> str:
    if data == b"bad":
        raise DataException("bad")
    return str(data)


def test_unconvertible_records_count_as_read_but_not_sent() -> None:
    options = EngineOptions(tolerate_errors=True, value_converter=converted)
    harness = started(ManualClock(), Sink(), options=options)
    harness.assign(P0)
    harness.deliver(P0, [b"a", b"bad", b"c"])

    found = measures(harness)
    assert (found.records_read, found.records_sent, found.errors.records_skipped) == (3, 2, 1)


def test_measures_of_generations_add_up() -> None:
    one = TaskMeasures(
        puts=Timing(1, 2.0, 2.0),
        largest_batch=10,
        records_read=10,
        active=Level(5, 10, 10, 1),
        errors=ErrorCounts(retries=1, last=7.0),
        seconds={"put": 2.0, "open": 1.0},
        closings=1,
    )
    two = TaskMeasures(
        puts=Timing(2, 2.0, 1.5),
        largest_batch=4,
        records_read=8,
        active=Level(0, 4, 8, 2),
        errors=ErrorCounts(retries=2),
        seconds={"put": 2.0, "stop": 1.0},
    )

    assert one + two == TaskMeasures(
        puts=Timing(3, 4.0, 2.0),
        largest_batch=10,
        records_read=18,
        active=Level(0, 10, 18, 3),
        errors=ErrorCounts(retries=3, last=7.0),
        seconds={"put": 4.0, "open": 1.0, "stop": 1.0},
        closings=1,
    )
    assert TaskMeasures() + one == one
