"""Partitions that wait for a retry release their task slot; a later generation continues the retries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinksdk import OffsetRange, RetriableException, SinkRecords
from sinksdk.engine import EngineOptions, TaskName, WorkerSinkTask
from sinksdk.engine.retry import RetryPolicy
from sinksdk.engine.task_run import ClosingRequest, SinkTaskRun
from sinksdk.model.outcome import Failure, Retry
from sinksdk.model.plan import RangePlan
from sinksdk.testing import ManualClock, MemoryCommitLog
from tests.engine.sinks import P0, P1, BufferingSink, Offsets, Sink, TwoPhaseSink, rows

PATIENCE = 5.0
RANGE = OffsetRange(0, 10)


def busy(times: int, **options: object) -> list[RetriableException]:
    return [RetriableException("busy", **options) for _ in range(times)]


class Generation:
    """One task with P0 and P1 on a manual clock, and the state that it passes to the next generation."""

    def __init__(
        self,
        sink: Sink,
        *batches: SinkRecords,
        at: float = 0.0,
        timeout: float | None = 300.0,
        retry: Retry | None = None,
        log: MemoryCommitLog | None = None,
        closing: Callable[[], ClosingRequest | None] = lambda: None,
        due: bool = False,
    ) -> None:
        self.log, self.clock = log or MemoryCommitLog(), ManualClock(at)
        sink.clock = self.clock  # type: ignore[attr-defined]  # for those whose calls take long
        worker = WorkerSinkTask(
            sink,
            TaskName("archive", 0),
            None,
            commits=self.log,
            clock=self.clock,
            options=EngineOptions(retry=RetryPolicy(timeout, patience=PATIENCE)),
        )
        assigned = [RangePlan.of(P0, *RANGE, due=due, retry=retry), RangePlan.of(P1, *RANGE, due=due)]
        run = SinkTaskRun(worker, assigned, batches, closing=closing, clock=self.clock)
        self.outcomes = {outcome.partition: outcome for outcome in run.run()}
        self.committed = {partition: offset.offset for partition, offset in self.log.offsets.items()}

    @property
    def failure(self) -> Failure:
        failure = self.outcomes[P0].failure
        assert failure is not None
        return failure

    @property
    def left(self) -> Retry:
        """Return the state of P0 that this generation passes to a later one."""
        retry = self.failure.retry
        assert retry is not None
        return retry


def failing(method: str, *errors: BaseException | None, sink: Sink | None = None) -> Sink:
    sink = sink or Sink()
    sink.faults[method].extend(errors)
    return sink


class Slow(Sink):
    """A sink whose failing ``put`` takes a minute."""

    clock: ManualClock

    def put(self, records: SinkRecords) -> None:
        if self.faults["put"]:
            self.clock.advance(60)
        super().put(records)


def test_a_batch_with_a_long_retry_delay_is_retried_by_a_later_generation() -> None:
    run = Generation(failing("put", None, *busy(5)), rows(P0, 0, 1), rows(P0, 2, 3), rows(P1, 0, 1))
    assert run.left == Retry(since=0.0, attempts=5, next_attempt=pytest.approx(9.5), refused=2)
    assert run.clock.now() == pytest.approx(0.3 + 0.6 + 1.2 + 2.4)
    assert (run.failure.message, run.outcomes[P0].position) == ("busy", 2)
    assert (run.outcomes[P1].failure, run.committed) == (None, {P0: 2, P1: 10})


def test_a_partition_that_waits_for_a_later_retry_is_not_closing() -> None:
    sink = failing("put", None, *busy(5), sink=BufferingSink())
    run = Generation(sink, rows(P0, 0, 1, 2, 3), rows(P0, 4))
    assert isinstance(sink, BufferingSink)
    assert (sink.files, run.committed[P0]) == ([(P0, [0, 1, 2])], 3)
    assert run.outcomes[P0].tail == 1


def test_a_delay_requested_by_the_task_counts_like_a_computed_one() -> None:
    run = Generation(failing("put", *busy(1, retry_after=4.0)), rows(P0, 0))
    assert (run.outcomes[P0].failure, run.clock.now()) == (None, 4.0)
    run = Generation(failing("put", *busy(1, retry_after=30.0)), rows(P0, 0))
    assert (run.left.next_attempt, run.clock.now()) == (30.0, 0.0)


def test_a_slow_failure_is_followed_by_an_equally_long_delay() -> None:
    run = Generation(failing("put", *busy(1), sink=Slow()), rows(P0, 0))
    assert run.clock.now() == 60.0
    assert run.left == Retry(since=60.0, attempts=1, next_attempt=120.0, refused=0)


def test_the_next_generation_retries_once_with_a_longer_delay() -> None:
    # The delay grows across generations as it does within one, up to ``errors.retry.delay.max.ms``.
    retry, waits = None, []
    for _ in range(5):
        at = retry.next_attempt if retry else 0.0
        times = 1 if retry else 5
        retry = Generation(failing("put", *busy(times)), rows(P0, 0), at=at, retry=retry, timeout=None).left
        waits.append(round(retry.next_attempt - max(at, 4.5), 1))
    assert waits == [5.0, 9.6, 19.2, 38.4, 60.0]
    assert (retry.since, retry.attempts) == (0.0, 9)


def test_the_timeout_counts_from_the_first_failure_of_all() -> None:
    retry = Retry(since=0.0, attempts=11, next_attempt=290.0, refused=0)
    left = Generation(failing("put", *busy(1)), rows(P0, 0), at=290.0, retry=retry).left
    assert left.next_attempt == pytest.approx(300.0)
    run = Generation(failing("put", *busy(1)), rows(P0, 0), at=300.0, retry=left)
    assert run.failure.retry is None
    assert "put of flights-0 at offset 0 failed 13 times until the end of errors.retry.timeout" in (
        run.failure.message
    )


def test_accepting_the_refused_record_restarts_the_timeout() -> None:
    retry = Retry(since=0.0, attempts=9, next_attempt=200.0, refused=2)
    again = Generation(
        failing("put", None, *busy(1), sink=BufferingSink()),
        rows(P0, 0, 1),
        rows(P0, 2),
        at=200.0,
        retry=retry,
    )
    assert (again.left.since, again.left.attempts) == (0.0, 10)
    other = Generation(
        failing("put", None, None, *busy(50), sink=BufferingSink()),
        *(rows(P0, 0, 1), rows(P0, 2), rows(P0, 3)),
        at=200.0,
        retry=retry,
    )
    assert (other.left.since, other.left.refused, other.committed[P0]) == (200.0, 3, 3)
    assert other.clock.now() > 200.0 + 60.0, "the periodic commit"


def test_a_retriable_pre_commit_error_is_not_a_failure() -> None:
    run = Generation(failing("pre_commit", *busy(1)), rows(P0, 0), due=True)
    assert run.left == Retry(since=0.0, attempts=1, next_attempt=PATIENCE)
    assert P0 not in run.committed
    later = Generation(failing("pre_commit", *busy(1)), rows(P0, 0), at=300.0, retry=run.left, due=True)
    assert later.failure.retry is None


def test_context_fail_with_a_retriable_error_is_not_a_failure() -> None:
    class Away(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.context.fail(P0, busy(1)[0])
            return {}

    assert Generation(Away(), rows(P0, 0)).left.attempts == 1


def test_publish_with_a_long_delay_is_retried_by_a_later_generation() -> None:
    sink = failing("publish", *busy(5), sink=TwoPhaseSink())
    run = Generation(sink, rows(P0, 0, 1), due=True)
    assert run.committed[P0] == 10
    assert run.left == Retry(since=0.0, attempts=5, next_attempt=pytest.approx(9.5))
    assert not run.failure.at_once
    again = Generation(
        failing("publish", *busy(1), sink=TwoPhaseSink()), log=run.log, at=290.0, retry=run.left
    )
    assert (again.left.since, again.left.attempts, again.left.next_attempt) == (0.0, 6, pytest.approx(299.6))
    last = Generation(
        failing("publish", *busy(1), sink=TwoPhaseSink()), log=run.log, at=300.0, retry=again.left
    )
    assert last.failure.retry is None


def test_the_retrying_generation_discards_prepared_tokens() -> None:
    # The destination is unavailable, and an abort without a response would occupy the task slot too.
    sink = TwoPhaseSink()
    failing("put", None, *busy(5), sink=sink)
    run = Generation(sink, rows(P0, 0), rows(P0, 1))
    assert (run.left.refused, sink.world.undone) == (1, [])


def test_without_a_limit_a_task_retries_on_its_task_slot() -> None:
    assert RetryPolicy().patience is None
    log, clock = MemoryCommitLog(), ManualClock(0.0)
    worker = WorkerSinkTask(failing("put", *busy(9)), TaskName("c", 0), None, commits=log, clock=clock)
    run = SinkTaskRun(worker, [RangePlan.of(P0, *RANGE)], [rows(P0, 0)], closing=lambda: None, clock=clock)
    (outcome,) = run.run()
    assert (outcome.failure, clock.now()) == (None, pytest.approx(136.5))


class Unsteady(BufferingSink):
    """Each second ``put`` fails with a transient error after a minute; its repetition succeeds."""

    clock: ManualClock
    puts = 0

    def put(self, records: SinkRecords) -> None:
        self.puts += 1
        if self.puts % 2:
            self.clock.advance(60)
            message = "timed out"
            raise RetriableException(message)
        super().put(records)


def test_a_sink_with_occasional_retries_finishes_its_file() -> None:
    first = Generation(Unsteady(), rows(P0, 0), rows(P0, 1), rows(P0, 2))
    assert first.left.refused == 0
    again = Unsteady()
    again.puts = 1  # the refused batch is accepted this time, and the next one is refused
    second = Generation(again, rows(P0, 0), rows(P0, 1), rows(P0, 2), at=120.0, retry=first.left)
    assert (second.outcomes[P0].failure, again.files) == (None, [(P0, [0, 1, 2])])
    assert second.committed[P0] >= 3
