"""When the tasks of a source that have failed are started again, and when enough is enough."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import NamedTuple

from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.runtime.pacing import Pacing, random_jitter
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store.reports import TaskStatus

log = logging.getLogger(__name__)


class TaskFailure(NamedTuple):
    """Why a task ended early.

    Args:
        message: what the exception said.
        trace: its stack trace.
    """

    message: str
    trace: str


class TaskRestarts:
    """One connector's tasks that failed.

    A task does not start again by itself: all tasks of the next generation start together. That one begins
    once every task that failed has waited for its back-off, so that a task which always fails does not
    restart the others ever faster.

    Args:
        config: the connector's.
        status: remembers failures.
        clock: time.
        jitter: what each back-off is multiplied by.
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
        self._pacing = Pacing.of_restarts(config, clock, jitter)
        self._failed: set[int] = set()
        self._due_at = 0.0
        self._problem: ConnectException | None = None

    def generation_begins(self) -> None:
        """All tasks start (again)."""
        self._failed.clear()
        self._due_at = 0.0

    def failed(self, task: int, failure: TaskFailure, *, made_progress: bool) -> None:
        """A task of the running generation has failed; told again, nothing changes.

        Args:
            task: its number.
            failure: why.
            made_progress: whether it had committed anything before: then it is its first failure in a row.
        """
        if task in self._failed:
            return
        self._failed.add(task)
        before, now, window = self._status.of_task(task), self._clock.time(), self._config.restart_window_ms
        lately = [at for at in before.failed_at if now - window / 1000 < at <= now]
        # One more than it takes to give up tells all there is to tell.
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
            self._problem = self._problem or self._given_up(task, failure)
            return
        delay = self._pacing.delay(failures)
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

    def forgive(self) -> bool:
        """What failed starts again at once, with all its attempts; whether anything has failed."""
        self._status.forgive()
        self._due_at = 0.0
        return bool(self._failed)

    def is_due(self) -> bool:
        """Whether the next generation shall begin, or the connector has failed."""
        return bool(self._failed) and (self._problem is not None or not self.waiting())

    def waiting(self) -> float:
        """Seconds until the next generation may begin."""
        return max(self._due_at - self._clock.now(), 0.0) if self._failed else 0.0

    def given_up(self) -> ConnectException | None:
        """What to raise when a task has failed too often."""
        return self._problem

    def _given_up(self, task: int, failure: TaskFailure) -> ConnectException:
        most = self._config.restart_max_attempts
        error = ConnectException(
            f"connector {self._config.name} has FAILED: task {task} failed {most + 1} times in a row or "
            f"within {self._config.restart_window_ms / 1000:g} s (restart.max.attempts is {most}): "
            f"{failure.message}"
        )
        error.add_note(failure.trace)
        return error
