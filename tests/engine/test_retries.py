"""RetriableException: the same call is repeated within a time-out, and no record is dropped."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from email.utils import format_datetime
from typing import Any

import numpy as np
import pytest

from sinksdk import ClosingReason, ConnectException, OffsetAndMetadata, RetriableException, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Sink, TwoPhaseSink


def busy(times: int, **options: object) -> list[RetriableException]:
    return [RetriableException("busy", **options) for _ in range(times)]


def retrying(*, timeout: float | None = 300.0, max_delay: float = 60.0, **engine: object) -> SinkTaskHarness:
    options = EngineOptions(retry=RetryPolicy(timeout, max_delay), **engine)
    harness = SinkTaskHarness(Sink, options=options)
    harness.start()
    harness.assign(P0, P1)
    return harness


# -- put ---------------------------------------------------------------------------------------------


def test_the_same_batch_is_put_again_after_a_growing_delay() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(4))
    harness.deliver(P0, ["a", "b"])
    waits = []
    while harness.worker.pending:
        waits.append(round(harness.worker.wait(), 3))
        harness.advance(harness.worker.wait())
    assert waits == [0.3, 0.6, 1.2, 2.4]
    batches = [call.arguments[0] for call in harness.called("put")]
    assert all(batch is batches[0] for batch in batches)
    assert harness.task.taken == {P0: [0, 1]}


def test_a_retried_batch_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(4))
    harness.deliver(P0, ["a", "b"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"put of {P0} at offset 0 failed, retrying: busy" in said


def test_nothing_is_put_before_the_delay_is_over() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    harness.advance(0.29)
    assert len(harness.called("put")) == 1
    harness.advance(0.01)
    assert len(harness.called("put")) == 2


def test_the_delay_is_capped() -> None:
    policy = RetryPolicy(timeout=None, max_delay=5.0)
    assert [policy.delay(failures) for failures in (1, 4, 5, 6, 10_000)] == [0.3, 2.4, 4.8, 5.0, 5.0]


def test_a_retry_waits_for_the_delay_requested_by_the_task() -> None:
    class Asking(Sink):
        def put(self, records: SinkRecords) -> None:
            if not self.faults["put"]:
                return
            if len(self.faults["put"]) == 3:
                self.context.timeout(17)
            super().put(records)

    harness = SinkTaskHarness(Asking)
    harness.start()
    harness.assign(P0)
    harness.task.faults["put"].extend([*busy(1), *busy(1, retry_after=4), *busy(1)])
    harness.deliver(P0, ["a"])
    waits = []
    while harness.worker.pending:
        waits.append(round(harness.worker.wait(), 3))
        harness.advance(harness.worker.wait())
    assert waits == [17, 4, 1.2]


def test_a_delay_requested_without_an_error_is_dropped() -> None:
    class Cautious(Sink):
        def put(self, records: SinkRecords) -> None:
            if records.first_offset == 0:
                self.context.timeout(50)
            super().put(records)

    harness = SinkTaskHarness(Cautious)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["b"])
    assert harness.worker.wait() == pytest.approx(0.3)


def test_commits_continue_while_a_batch_waits() -> None:
    harness = retrying(commit_interval=1.0)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.task.faults["put"].extend(busy(3))
    harness.deliver(P0, ["b"])
    harness.advance(1.0)
    assert harness.committed == {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)}
    assert harness.worker.pending


def test_an_expired_retry_timeout_fails_the_partition() -> None:
    harness = retrying(timeout=6.0)
    harness.deliver(P0, ["a"])
    harness.task.faults["put"].extend(busy(99))
    harness.deliver(P0, ["b"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    assert len(harness.called("put")) == 1 + 6  # at 0, 0.3, 0.9, 2.1, 4.5 and 6 s, as in Connect
    failure = harness.outcome(P0).failure
    assert "put of flights-0 at offset 1 failed 6 times" in failure.message
    assert "errors.retry.timeout" in failure.message
    assert "busy" in failure.trace
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert harness.task.context.assignment() == {P1}
    harness.task.faults["put"].clear()
    harness.deliver(P0, ["b"])
    harness.deliver(P1, ["x"])
    assert harness.task.taken == {P0: [0], P1: [0]}


def test_a_retry_timeout_of_zero_allows_no_retry() -> None:
    harness = retrying(timeout=0)
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    assert not harness.worker.pending
    assert harness.outcome(P0).failure is not None


def test_an_unlimited_retry_timeout_never_expires() -> None:
    harness = retrying(timeout=None, max_delay=1.0)
    harness.task.faults["put"].extend(busy(2_000))
    harness.deliver(P0, ["a"])
    while harness.worker.pending:
        harness.advance(harness.worker.wait())
    assert harness.task.taken == {P0: [0]}


def test_a_new_batch_has_a_new_retry_timeout() -> None:
    harness = retrying(timeout=1.0)
    for _ in range(5):
        harness.task.faults["put"].extend(busy(2))
        harness.deliver(P0, ["a"])
        harness.advance(0.3)
        harness.advance(0.6)
    assert harness.task.taken == {P0: [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("start", [0.0, 1_000.0, 12_345.678, 1_700_000_000.123])
@pytest.mark.parametrize("timeout", [0.1, 1.0, 2.5, 6.0, 7.7, 300.0])
def test_a_retry_timeout_expires_despite_rounding_of_the_clock(start: float, timeout: float) -> None:
    attempts, now, failures = Attempts(RetryPolicy(timeout)), start, 0
    while (delay := attempts.failed(now)) is not None:
        failures += 1
        assert now + delay > now
        now += delay
    assert now - start == pytest.approx(timeout, abs=1e-5)
    assert failures < 30


def test_a_batch_offered_while_another_waits_is_refused() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    with pytest.raises(RuntimeError, match="awaits redelivery"):
        harness.deliver(P1, ["x"])
    assert harness.position(P1) == 0
    harness.advance(0.3)
    harness.deliver(P1, ["x"])
    assert harness.task.taken == {P0: [0], P1: [0]}


# -- partitions that go while a batch waits ------------------------------------------------------------


def test_a_waiting_batch_is_dropped_with_its_partition() -> None:
    harness = retrying()
    harness.deliver(P0, ["a"])
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["b", "c"])
    harness.revoke(P0)
    assert not harness.worker.pending
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    harness.advance(3600)
    assert harness.task.taken == {P0: [0]}


def test_a_waiting_batch_is_not_put_after_its_partition_is_reassigned() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a", "b", "c"])
    harness.revoke(P0)
    harness.assign(P0)
    harness.advance(3600)
    harness.commit()
    assert harness.committed == {}
    assert harness.position(P0) == 0
    harness.deliver(P0, ["a", "b", "c"])
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_a_waiting_batch_is_kept_when_another_partition_is_revoked() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    harness.revoke(P1)
    assert harness.worker.pending
    harness.advance(0.3)
    assert harness.task.taken == {P0: [0]}


def test_a_waiting_batch_is_dropped_with_its_lost_partition() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    harness.lose(P0)
    harness.advance(3600)
    assert not harness.worker.pending
    assert harness.task.taken == {}


def test_a_pause_drops_the_waiting_batch() -> None:
    harness = retrying()
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    harness.revoke(reason=ClosingReason.PAUSE)
    harness.advance(3600)
    assert len(harness.called("put")) == 1
    assert harness.task.context.assignment() == frozenset()


# -- publish -----------------------------------------------------------------------------------------


def publishing(timeout: float | None = 300.0) -> SinkTaskHarness:
    harness = SinkTaskHarness(TwoPhaseSink, options=EngineOptions(retry=RetryPolicy(timeout)))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    return harness


def test_publish_is_retried() -> None:
    harness = publishing()
    harness.task.faults["publish"].extend([*busy(2), *busy(1, retry_after=9)])
    before = harness.clock.now()
    harness.commit()
    assert harness.clock.now() - before == pytest.approx(0.3 + 0.6 + 9)
    assert harness.task.world.visible == ["upload-0"]
    assert len({call.arguments for call in harness.called("publish")}) == 1


def test_publish_fails_after_the_retry_timeout() -> None:
    harness = publishing(timeout=6.0)
    harness.task.faults["publish"].extend(busy(99))
    harness.commit()
    assert len(harness.called("publish")) == 6
    assert harness.committed[P0].offset == 1
    assert [token.id for token in harness.committed[P0].publish] == ["upload-0"]
    assert harness.outcome(P0).failure.at_once


def test_publish_is_not_retried_beyond_the_closing_deadline() -> None:
    harness = publishing()
    harness.task.faults["publish"].extend(busy(99))
    before = harness.clock.now()
    harness.revoke(timeout=2.0)
    assert harness.clock.now() - before <= 2.0
    assert [token.id for token in harness.committed[P0].publish] == ["upload-0"]
    assert harness.names()[-1] == "close"


# -- what is not retried -----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ConnectException("no"), ValueError("no"), AssertionError()])
def test_other_errors_of_put_fail_the_partition_at_once(error: Exception) -> None:
    harness = retrying()
    harness.task.faults["put"].append(error)
    harness.deliver(P0, ["a"])
    assert harness.outcome(P0).failure.kind == type(error).__name__
    assert harness.task.context.assignment() == {P1}
    assert len(harness.called("put")) == 1


def test_a_task_that_fails_its_own_partition_is_not_retried() -> None:
    class GivingUp(Sink):
        def put(self, records: SinkRecords) -> None:
            self.context.fail(P0, ConnectException("enough"))
            super().put(records)

    harness = SinkTaskHarness(GivingUp)
    harness.start()
    harness.assign(P0)
    harness.task.faults["put"].extend(busy(1))
    harness.deliver(P0, ["a"])
    assert not harness.worker.pending
    assert harness.outcome(P0).failure.message == "enough"


@pytest.mark.parametrize(
    ("wait", "seconds"),
    [
        ("5", 5.0),
        (" 2.5 ", 2.5),
        (dt.timedelta(minutes=1), 60.0),
        (np.int64(3), 3.0),
        (Decimal("0.5"), 0.5),
        (0, 0.0),
        (-1, -1.0),
        (None, None),
    ],
)
def test_retry_after_accepts_http_and_python_formats(wait: Any, seconds: float | None) -> None:
    # A header's text, a timedelta, and anything that Python accepts as a number are seconds.
    assert RetriableException("busy", retry_after=wait).retry_after == seconds
    later = RetriableException("busy")
    later.retry_after = wait
    assert later.retry_after == seconds


def test_retry_after_accepts_an_http_date() -> None:
    date = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=100)
    waited = RetriableException("busy", retry_after=format_datetime(date, usegmt=True)).retry_after
    assert waited is not None
    assert 95 < waited <= 100


@pytest.mark.parametrize("wait", ["soon", "", "5 s", float("nan"), float("inf"), True, [5], "nan"])
def test_an_invalid_retry_after_fails_the_partition(wait: Any) -> None:
    class Task(Sink):
        def put(self, records: SinkRecords) -> None:
            raise RetriableException("429", retry_after=wait)

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.message == (
        f"ValueError: RetriableException('429'): retry_after is {wait!r}: give seconds as a number, a "
        f"timedelta, or the text of a Retry-After header"
    )


def test_context_timeout_accepts_seconds_as_text() -> None:
    class Task(Sink):
        def put(self, records: SinkRecords) -> None:
            self.context.timeout("7")  # type: ignore[arg-type]
            raise RetriableException("429")

    harness = SinkTaskHarness(Task)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    assert harness.worker.wait() == 7.0
