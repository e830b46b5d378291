from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from sinksdk import ConnectorConfig, OffsetRange, RetriableException
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.outcome import Failure, PartitionOutcome, Retry
from sinksdk.model.plan import RangePlan
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.failures import PartitionFailures, count_failures
from sinksdk.runtime.planner import Backlog, Planner
from sinksdk.store.records import GenerationPlan, TaskPlan
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0

HOUR = 3600.0


@pytest.mark.parametrize(
    ("failure", "is_final", "ends"), [(None, False, False), ("away", False, False), ("late", True, True)]
)
def test_a_final_failure_closes_the_others_at_once(failure: str | None, is_final: bool, ends: bool) -> None:
    clock = SystemWallClock()
    config = ConnectorConfig.parse({"name": "c", "topics": "t", "restart.max.attempts": "5"})
    status = StatusKeeper(MemoryStore(), "c", "driver", clock)
    failures = PartitionFailures(config, status, Backoff(1.0, clock), clock)

    known = None if failure is None else Failure("ConnectException", failure, "", is_final=is_final)
    assert failures.would_give_up(PartitionOutcome(P0, None, 3, 3, 0, 3, known)) is ends


def test_a_waiting_partition_uses_up_no_restart_attempt(caplog: pytest.LogCaptureFixture) -> None:
    # The task reports the time of its next attempt. The driver logs the beginning and the end of the wait.
    clock, store = ManualClock(), MemoryStore()
    config = ConnectorConfig.parse({"name": "c", "topics": "t", "restart.max.attempts": "0"})
    status, backoff = StatusKeeper(store, "c", "driver", clock), Backoff(1.0, clock)
    failures = PartitionFailures(config, status, backoff, clock)
    planned = RangePlan(topic="t", partition=0, start=0, end=9)
    plan = GenerationPlan(generation=1, config_version=1, tasks=(TaskPlan(ranges=(planned,)),), committed=())

    for attempts in range(1, 4):
        retry = Retry(clock.time() - 40, attempts, clock.time() + 30, refused=5)
        failure = Failure.of(RetriableException("S3 asks for patience"), retry=retry)
        failures.record(plan, [PartitionOutcome(P0, None, 5, 5, 5, 5, failure)])
        assert (backoff.waiting(P0), failures.given_up()) == (30, None)

    known = StatusKeeper(store, "c", "another driver", clock).of(P0)
    assert known is not None
    assert (known.failures, known.failed_at, known.error) == (0, (), "S3 asks for patience")
    assert known.tail is None
    (range_,) = (
        Planner().decide([Backlog(P0, OffsetRange(0, 9), None, state=known)], clock.time(), flush=True).ranges
    )
    assert range_.retry == Retry(
        since=clock.time() - 40, attempts=3, next_attempt=clock.time() + 30, refused=5
    )

    failures.record(plan, [PartitionOutcome(P0, 9, 9, 9, 0, 9)])
    done = status.of(P0)
    assert done is not None
    assert (done.retry, done.error, backoff.is_waiting(P0)) == (None, None, False)
    first, last = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert first.startswith("connector c: t-0: retrying in 30.0 s without holding a task slot (1 attempt in ")
    assert last.startswith("connector c: the operation that its partitions retried works again after")


@pytest.mark.parametrize(
    ("timeout", "ahead", "seconds"),
    [
        (300_000, 0, 30),
        (300_000, 5 * HOUR, 300),
        (300_000, -5 * HOUR, 0),
        (10_000, 5 * HOUR, 10),
        (-1, 0, 30),
        (-1, 5 * HOUR, HOUR),
        (-1, -5 * HOUR, 0),
    ],
)
def test_a_wrong_executor_clock_does_not_prolong_a_wait(timeout: int, ahead: float, seconds: float) -> None:
    clock = ManualClock()
    config = ConnectorConfig.parse({"name": "c", "topics": "t", "errors.retry.timeout": str(timeout)})
    backoff = Backoff(1.0, clock)
    failures = PartitionFailures(config, StatusKeeper(MemoryStore(), "c", "driver", clock), backoff, clock)
    planned = RangePlan(topic="t", partition=0, start=0, end=9)
    plan = GenerationPlan(generation=1, config_version=1, tasks=(TaskPlan(ranges=(planned,)),), committed=())

    retry = Retry(clock.time(), 1, clock.time() + 30).on_clock(ahead)
    failure = Failure.of(RetriableException("S3 asks for patience"), retry=retry)
    failures.record(plan, [PartitionOutcome(P0, None, 5, 5, 5, 5, failure)])
    assert backoff.waiting(P0) == seconds
    clock.advance(seconds)
    assert not backoff.is_waiting(P0)


def test_a_waiting_partition_does_not_close_other_tasks() -> None:
    # A wait does not count as an attempt, so it may happen with ``restart.max.attempts`` 0.
    clock = ManualClock()
    config = ConnectorConfig.parse({"name": "c", "topics": "t", "restart.max.attempts": "0"})
    status = StatusKeeper(MemoryStore(), "c", "driver", clock)
    retry = Retry(since=clock.time(), attempts=1, next_attempt=clock.time() + 30)
    failure = Failure.of(RetriableException("S3 asks for patience"), retry=retry)
    outcome = PartitionOutcome(P0, None, 3, 3, 0, 3, failure)
    failures = PartitionFailures(config, status, Backoff(1.0, clock), clock)
    assert not failures.would_give_up(outcome)
    assert failures.would_give_up(replace(outcome, failure=replace(failure, retry=None)))


def test_failures_in_a_row_are_counted_and_progress_resets_them() -> None:
    planned = RangePlan(topic="t", partition=0, start=10, end=50)
    failure = Failure("E", "no", "")
    once = count_failures(None, planned, PartitionOutcome(P0, None, 20, 20, 0, 20, failure))
    twice = count_failures(once, planned, PartitionOutcome(P0, 10, 20, 20, 0, 20, failure))
    progressed = count_failures(twice, planned, PartitionOutcome(P0, 15, 20, 20, 0, 20, failure))
    well = count_failures(progressed, planned, PartitionOutcome(P0, 50, 50, 50, 0, 50))

    assert [s.failures for s in (once, twice, progressed, well)] == [1, 2, 1, 0]
    assert (twice.error, well.error) == ("no", None)
