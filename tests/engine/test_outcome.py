"""The outcome of a partition, with times on the clock of the process that reads it."""

from __future__ import annotations

from dataclasses import replace

from sinksdk.model.outcome import Failure, PartitionOutcome, Retry
from sinksdk.offsets import OffsetRange
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, BufferingSink, rows


def test_committed_records_of_a_dead_attempt_are_counted() -> None:
    # Regression: after workers were killed, too few committed records were reported. Records that were read
    # twice count once.
    harness = SinkTaskHarness(BufferingSink)
    harness.start()
    harness.assign(P0, limits=OffsetRange(0, 100))
    harness.deliver(P0, rows(P0, 0, 10, 20))
    harness.commit()
    harness.deliver(P0, rows(P0, 30, 40))
    harness.crash()

    harness.start()
    harness.assign(P0, limits=OffsetRange(0, 100))
    harness.deliver(P0, rows(P0, 0, 10, 20, 30, 40, 50))
    (outcome,) = harness.worker.outcomes()
    assert (outcome.records, outcome.earlier, outcome.tail, outcome.read_from) == (6, 3, 3, 0)
    harness.revoke(P0)
    (outcome,) = harness.worker.outcomes()
    assert (outcome.records, outcome.tail) == (6, 0)
    assert harness.log.records(P0) == 6


def test_on_clock_converts_only_times() -> None:
    # The executor's clock is 5 s behind: only ``since`` and ``next_attempt`` are converted to the driver's
    # clock.
    retry = Retry(since=100.0, attempts=3, next_attempt=130.0, refused=17)
    outcome = PartitionOutcome.unread(P0, 7, replace(Failure.of(ValueError("no")), retry=retry))
    moved = outcome.on_clock(5.0)
    assert moved.failure is not None
    assert moved.failure.retry == Retry(since=105.0, attempts=3, next_attempt=135.0, refused=17)
    assert replace(moved, failure=outcome.failure) == outcome


def test_on_clock_keeps_an_outcome_without_retry_unchanged() -> None:
    for failure in (None, Failure.of(ValueError("no"))):
        outcome = PartitionOutcome.unread(P0, 7, failure)
        assert outcome.on_clock(5.0) is outcome
