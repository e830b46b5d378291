"""Failed partitions of a sink and tasks of a source: their back-off, and the failure of the connector."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from sinksdk.config import ConnectorConfig
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.model.outcome import End, Failure, PartitionOutcome, SourceTaskOutcome
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.backoff import LONGEST, Backoff, Waits
from sinksdk.runtime.planner import remember
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress, TaskStatus
from sinksdk.support.logs import Outage

log = logging.getLogger(__name__)

_MOST_MOVES: Final = 5  # moves of a commit by a task that are allowed before they count as a loop
_MOVES_COUNT_FOR: Final = 600.0  # seconds, where restart.window.ms is 0
_LONGEST_WAIT: Final = 3600.0  # seconds, where errors.retry.timeout is -1


class Failures:
    def __init__(
        self,
        config: ConnectorConfig | SourceConnectorConfig,
        status: StatusKeeper,
        backoff: Backoff,
        clock: WallClock,
    ) -> None:
        self.backoff = backoff
        self._status = status
        self._clock = clock
        self._name = config.name
        # The connector fails after more failures than this.
        self._most = config.restart_max_attempts
        self._window = config.restart_window_ms / 1000
        self._waits = Waits(f"connector {config.name}", clock, backoff)
        self._fatal: ConnectException | None = None
        self._forget()

    def away(self, error: RetriableException | None) -> float:
        """Record that a required system is unavailable (None: available); return the seconds to wait."""
        if error is None:
            self._waits.over()
            self._status.wait_for(None)
            return 0.0
        delay, waiting = self._waits.failed(error)
        self._status.wait_for(waiting)
        return delay

    def given_up(self) -> ConnectException | None:
        return self._fatal

    def _forget(self) -> None:
        forgotten: dict[str, Any] = {"failures": 0, "failed_at": (), "moved_at": (), "retry": None}
        self._status.update(known.model_copy(update=forgotten) for known in self._status.partitions())
        self._status.forget_tasks()

    def _lately(self, failed_at: Iterable[float], *, fails: bool = False) -> tuple[float, ...]:
        now = self._clock.time()
        lately = [at for at in failed_at if now - self._window < at <= now] + [now] * fails
        # One failure more than the limit is enough to show that it is exceeded.
        return tuple(lately[-self._most - 1 :])

    def _give_up(self, what: str, failure: Failure) -> None:
        if failure.is_final:
            often = "and a restart does not help"
        elif not self._most:
            often = "and restart.max.attempts is 0"
        else:
            often = (
                f"{self._most + 1} times in a row or within {self._window:g} s (restart.max.attempts is "
                f"{self._most})"
            )
        error = ConnectException(f"connector {self._name} has FAILED: {what} {often}: {failure.message}")
        error.add_note(failure.trace)
        # The first fatal failure counts.
        self._fatal = self._fatal or error

    def _log_restart(self, what: str, seconds: float, failures: int, failure: Failure) -> None:
        log.warning(
            "connector %s: %s again in %.1f s (attempt %d of %d): %s",
            self._name,
            what,
            seconds,
            failures,
            self._most,
            failure.message,
        )


class PartitionFailures(Failures):
    def __init__(
        self, config: ConnectorConfig, status: StatusKeeper, backoff: Backoff, clock: WallClock
    ) -> None:
        super().__init__(config, status, backoff, clock)
        self._config = config
        self._has_discarded_at_last = False
        self._refused: dict[TopicPartition, PartitionOutcome] = {}
        self._moved_from: dict[TopicPartition, int] = {}
        self._overtaken: Counter[TopicPartition] = Counter()
        self._outage = Outage(
            log, f"connector {config.name}: the operation that its partitions retried", clock=clock.now
        )

    def reset(self) -> bool:
        self._forget()
        self.backoff.reset_all()
        return True

    def may_discard_before_the_end(self) -> bool:
        if self._has_discarded_at_last:
            return False
        # Stale data is discarded once before a run ends, because the next run may be months away and such
        # data takes up storage.
        self._has_discarded_at_last = True
        self.backoff.discard_now()
        return True

    def record(
        self,
        plan: GenerationPlan,
        outcomes: Sequence[PartitionOutcome],
        overtaken: Collection[TopicPartition] = (),
    ) -> None:
        planned = {p.topic_partition: p for task in plan.tasks for p in task.ranges}
        for outcome in outcomes:
            self._record(planned[outcome.partition], outcome)
        if not any(outcome.failure and outcome.failure.retry for outcome in outcomes):
            self._outage.worked()
        self._status.save()
        for outcome in outcomes:
            # Records that retention has removed are no failure. But the partition waits longer each time in a
            # row, so that the driver reads the others in between.
            self._note_overtaken(outcome.partition, is_overtaken=outcome.partition in overtaken)

    def _record(self, planned: RangePlan, outcome: PartitionOutcome) -> None:
        partition, failure = outcome.partition, outcome.failure
        before = self._status.of(partition)
        status = remember(count_failures(before, planned, outcome), planned, outcome)
        fails = failure is not None and failure.retry is None
        failed_at = self._lately(before.failed_at if before else (), fails=fails)
        status = status.model_copy(update={"failed_at": failed_at})
        self._status.update([status])
        self.backoff.reset(partition)
        self._refused.pop(partition, None)
        if failure is None:
            if outcome.moved_to is not None:
                self._moved(planned, outcome, status)
            elif planned.due and outcome.tail > 0 and outcome.read_to >= planned.end:
                # The task was given all records, and yet its closing commit did not cover them.
                self._refused[partition] = outcome
                self.backoff.waits(partition, LONGEST)
            return
        if failure.retry is not None:
            self._await_retry(partition, failure)
            return
        failures = max(status.failures, len(failed_at))
        is_fatal = failures > self._most or failure.is_final
        if is_fatal:
            self._give_up(f"{partition} failed (read up to offset {outcome.position}),", failure)
        if not (failure.at_once and failures == 1):
            seconds = self.backoff.failed(partition, failures)
            if not is_fatal:
                self._log_restart(f"{partition} is opened", seconds, failures, failure)

    def _await_retry(self, partition: TopicPartition, failure: Failure) -> None:
        retry = failure.retry
        assert retry is not None  # noqa: S101 - else it is no wait
        timeout = self._config.errors_retry_timeout
        longest = timeout / 1000 if timeout >= 0 else _LONGEST_WAIT
        # The task's timestamp is of the executor's clock, which may be wrong by hours.
        seconds = min(max(retry.next_attempt - self._clock.time(), 0.0), longest)
        self.backoff.waits(partition, seconds)
        self._outage.failed(
            "connector %s: %s: retrying %s without holding a task slot (%s in %.0f s; errors.retry.timeout "
            "is %s): %s",
            self._name,
            partition,
            f"in {seconds:.1f} s" if seconds else "now",
            "1 attempt" if retry.attempts == 1 else f"{retry.attempts} attempts",
            self._clock.time() - retry.since,
            f"{timeout / 1000:g} s" if timeout >= 0 else "unlimited",
            failure.message,
        )

    def _moved(self, planned: RangePlan, outcome: PartitionOutcome, status: PlannerState) -> None:
        now, window = self._clock.time(), self._window or _MOVES_COUNT_FOR
        back_from = self._moved_from.get(outcome.partition)
        self._moved_from[outcome.partition] = planned.start
        assert outcome.moved_to is not None  # noqa: S101 - the caller's condition
        # There is progress if the destination is ahead of the commit that was moved back last.
        got_further = back_from is not None and outcome.moved_to >= back_from
        earlier = () if got_further else status.moved_at
        moved = [*(at for at in earlier if now - window < at <= now), now]
        self._status.update([status.model_copy(update={"moved_at": tuple(moved[-_MOST_MOVES - 1 :])})])
        # A rewind is no failure, but must not become an endless loop.
        if len(moved) > _MOST_MOVES:
            error = ConnectException(
                f"its task requested an offset below the commit {len(moved)} times within {window:g} s, the "
                f"last time {outcome.moved_to}: the offsets that open requests must agree with those that "
                f"pre_commit returns"
            )
            self._give_up(
                f"{outcome.partition} failed (read up to offset {outcome.position}),",
                Failure.of(error, is_final=True),
            )
        elif len(moved) > 1:
            log.warning(
                "connector %s: the task of %s requested an offset below the commit %d times within %g s, the "
                "last time %s; the partition is opened again in %.1f s (the connector fails after more than "
                "%d times)",
                self._name,
                outcome.partition,
                len(moved),
                window,
                outcome.moved_to,
                self.backoff.failed(outcome.partition, len(moved) - 1),
                _MOST_MOVES,
            )

    def _note_overtaken(self, partition: TopicPartition, *, is_overtaken: bool) -> None:
        if not is_overtaken:
            self._overtaken.pop(partition, None)
            return
        self._overtaken[partition] += 1
        log.warning(
            "connector %s: %s: retention has removed records before they were read; retrying in "
            "%.1f s from the start of its log (on.data.loss=%s)",
            self._name,
            partition,
            self.backoff.failed(partition, self._overtaken[partition]),
            self._config.on_data_loss,
        )

    def would_give_up(self, outcome: PartitionOutcome) -> bool:
        failure, status = outcome.failure, self._status.of(outcome.partition)
        if failure is None or failure.retry is not None:
            return False
        failures = max(status.failures, len(self._lately(status.failed_at))) if status else 0
        return failure.is_final or failures >= self._most

    def left_over(self) -> ConnectException | None:
        if not self._refused:
            return None
        parts = "; ".join(
            f"{partition}: committed offset {'none' if outcome.committed is None else outcome.committed}, "
            f"end offset {outcome.read_to}, {outcome.tail} records uncommitted"
            for partition, outcome in sorted(self._refused.items())
        )
        return ConnectException(
            f"connector {self._name}: all records were delivered, but the closing pre_commit did not return "
            f"the end offsets ({parts}); while context.is_closing() is true, pre_commit must make all "
            f"records durable and return their offsets"
        )


def count_failures(
    status: PlannerState | None, planned: RangePlan, outcome: PartitionOutcome
) -> PlannerState:
    status = status or PlannerState(topic=planned.topic, partition=planned.partition)
    failure, failures = outcome.failure, 0
    if failure:  # waiting for a retry is neither a failure nor a success
        made_progress = outcome.committed is not None and outcome.committed > planned.start
        failures = (0 if made_progress else status.failures) + (failure.retry is None)
    return status.model_copy(
        update={
            "failures": failures,
            "error": failure.message if failure else None,
            "trace": failure.trace if failure else None,
            "retry": failure.retry if failure else None,
        }
    )


class TaskFailures(Failures):
    def __init__(
        self, config: SourceConnectorConfig, status: StatusKeeper, backoff: Backoff, clock: WallClock
    ) -> None:
        super().__init__(config, status, backoff, clock)
        self._graceful_ms = config.graceful_timeout_ms
        self._failed: set[int] = set()
        self._due_at = 0.0

    def report(self, rows: Mapping[int, SourceProgress]) -> None:
        for task, row in rows.items():
            if row.failure is not None:
                failure = Failure(ConnectException.__name__, row.failure, row.trace or "")
                self._failed_with(task, failure, made_progress=row.records > 0)
        if rows:
            self.away(None)

    def record(self, outcomes: Sequence[SourceTaskOutcome]) -> None:
        for task, outcome in enumerate(outcomes):
            if outcome.end in (End.FAILED, End.FENCED) and outcome.failure is not None:
                self._failed_with(task, outcome.failure, made_progress=outcome.records > 0)
            if outcome.end is End.CANCELLED:
                log.warning(
                    "connector %s: task %d did not stop in time (task.shutdown.graceful.timeout.ms is %d); "
                    "its uncommitted records are read again",
                    self._name,
                    task,
                    self._graceful_ms,
                )

    def generation_begins(self) -> None:
        self._failed.clear()
        self._due_at = 0.0

    def _failed_with(self, task: int, failure: Failure, *, made_progress: bool) -> None:
        # Each progress report repeats the failure.
        if task in self._failed:
            return
        self._failed.add(task)
        before = self._status.of_task(task)
        failed_at = self._lately(before.failed_at, fails=True)
        in_a_row = 1 if made_progress else before.failures + 1
        self._status.update_task(
            TaskStatus(
                task=task,
                failures=in_a_row,
                failed_at=failed_at,
                error=failure.message,
                trace=failure.trace,
            )
        )
        self._status.save()
        failures = max(in_a_row, len(failed_at))
        if failures > self._most:
            self._give_up(f"task {task} failed", failure)
            return
        delay = self.backoff.delay(failures)
        # All tasks start together after the longest back-off, so that one that always fails does not restart
        # the others too often.
        self._due_at = max(self._due_at, self._clock.now() + delay)
        self._log_restart(f"task {task} is started", delay, failures, failure)

    def reset(self) -> bool:
        self._forget()
        self._due_at = 0.0
        return bool(self._failed)

    def is_due(self) -> bool:
        return bool(self._failed) and (self._fatal is not None or not self.waiting())

    def waiting(self) -> float:
        return max(self._due_at - self._clock.now(), 0.0) if self._failed else 0.0
