"""Failed tasks of a source: their back-off, and the failure of the connector."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import End, Failure, SourceTaskOutcome
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.runtime.backoff import Backoff, Waits, random_jitter
from sinksdk.runtime.failures import forget_failures
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store.reports import SourceProgress, TaskStatus

log = logging.getLogger(__name__)


class TaskFailures:
    """One connector's failed tasks.

    A task is not restarted alone: all tasks of the next generation start together, after the back-off of
    every failed task, so that one that always fails does not restart the others too often.

    Args:
        status: remembers failures until the next start of the driver.
        jitter: factor of each back-off.
    """

    def __init__(
        self,
        config: SourceConnectorConfig,
        status: StatusKeeper,
        clock: WallClock,
        jitter: Callable[[], float] = random_jitter,
    ) -> None:
        self._config = config
        self._status = status
        self._clock = clock
        self._backoff = Backoff.of_restarts(config, clock, jitter)
        self._waits = Waits.of_restarts(f"connector {config.name}", config, clock, jitter)
        self._failed: set[int] = set()
        self._due_at = 0.0
        self._fatal: ConnectException | None = None
        forget_failures(status)

    def away(self, error: RetriableException | None) -> float:
        """As :meth:`PartitionFailures.away`."""
        return self._waits.record(error, self._status.wait_for)

    def report(self, rows: Mapping[int, SourceProgress]) -> None:
        """Take the reports of the running generation's tasks, by number."""
        for task, row in rows.items():
            if row.failure is not None:
                failure = Failure(ConnectException.__name__, row.failure, row.trace or "")
                self._failed_with(task, failure, made_progress=row.records > 0)
        if rows:
            self.away(None)

    def record(self, outcomes: Sequence[SourceTaskOutcome]) -> None:
        """Record the outcomes of a generation's tasks, by number."""
        for task, outcome in enumerate(outcomes):
            if outcome.end in (End.FAILED, End.FENCED) and outcome.failure is not None:
                self._failed_with(task, outcome.failure, made_progress=outcome.records > 0)
            if outcome.end is End.CANCELLED:
                log.warning(
                    "connector %s: task %d did not stop in time (task.shutdown.graceful.timeout.ms is %d); "
                    "what it had not committed is read again",
                    self._config.name,
                    task,
                    self._config.graceful_timeout_ms,
                )

    def generation_begins(self) -> None:
        """All tasks start (again)."""
        self._failed.clear()
        self._due_at = 0.0

    def _failed_with(self, task: int, failure: Failure, *, made_progress: bool) -> None:
        """A task of the running generation has failed. Idempotent.

        Args:
            made_progress: whether it had committed before: then it is its first failure in a row.
        """
        if task in self._failed:
            return
        self._failed.add(task)
        before, now, window = self._status.of_task(task), self._clock.time(), self._config.restart_window_ms
        lately = [at for at in before.failed_at if now - window / 1000 < at <= now]
        # One more than the limit is enough to count.
        kept = [*lately, now][-self._config.restart_max_attempts - 1 :]
        in_a_row = 1 if made_progress else before.failures + 1
        self._status.update_task(
            TaskStatus(
                task=task,
                failures=in_a_row,
                failed_at=tuple(kept),
                error=failure.message,
                trace=failure.trace,
            )
        )
        self._status.save()
        failures = max(in_a_row, len(kept) if window else 0)
        if failures > self._config.restart_max_attempts:
            self._fatal = self._fatal or self._given_up(task, failure)
            return
        delay = self._backoff.delay(failures)
        self._due_at = max(self._due_at, self._clock.now() + delay)
        log.warning(
            "connector %s: task %d is started again in %.1f s (attempt %d of %d): %s",
            self._config.name,
            task,
            delay,
            failures,
            self._config.restart_max_attempts,
            failure.message,
        )

    def reset(self) -> bool:
        """Start failed tasks again at once, with all attempts; whether there are any."""
        forget_failures(self._status)
        self._due_at = 0.0
        return bool(self._failed)

    def is_due(self) -> bool:
        """Whether the next generation is due, or the connector has failed."""
        return bool(self._failed) and (self._fatal is not None or not self.waiting())

    def waiting(self) -> float:
        """Seconds until the next generation may begin."""
        return max(self._due_at - self._clock.now(), 0.0) if self._failed else 0.0

    def given_up(self) -> ConnectException | None:
        """The error for a task that has failed too often."""
        return self._fatal

    def _given_up(self, task: int, failure: Failure) -> ConnectException:
        most = self._config.restart_max_attempts
        error = ConnectException(
            f"connector {self._config.name} has FAILED: task {task} failed {most + 1} times in a row or "
            f"within {self._config.restart_window_ms / 1000:g} s (restart.max.attempts is {most}): "
            f"{failure.message}"
        )
        error.add_note(failure.trace)
        return error
