"""Delay and limit retries, and leave long waits to a later generation."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from sinksdk.engine.clock import Clock, Signal
from sinksdk.engine.measures import Measures
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.model.outcome import Retry
from sinksdk.support.delays import HOOK

log = logging.getLogger(__name__)

T = TypeVar("T")

_GRAIN = 1e-6  # seconds: clocks are floats, so that a smaller remainder might never elapse


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Delays grow until ``max_delay``; attempts end at the time-out."""

    timeout: float | None = HOOK.total  # seconds after the first failure; None: no limit
    max_delay: float = HOOK.cap
    # A task retries in place for so many seconds, then releases its task slot. None: no limit.
    patience: float | None = None

    def delay(self, failures: int, asked: float | None = None) -> float:
        if asked is not None:
            return max(asked, 0.0)
        return replace(HOOK, cap=self.max_delay).after(failures)


class Attempts:
    def __init__(self, policy: RetryPolicy, begun: float = 0.0, earlier: Retry | None = None) -> None:
        self._policy = policy
        self._begun = begun
        self.failures = earlier.attempts if earlier else 0
        self._since = earlier.since if earlier else 0.0

    def failed(self, now: float, asked: float | None = None) -> float | None:
        """Note a failure; return the seconds until the next attempt, or None after the time-out."""
        if not self.failures:
            self._since = now
        self.failures += 1
        elapsed = now - self._since
        delay, timeout = self._policy.delay(self.failures, asked), self._policy.timeout
        if timeout is None:
            return delay
        return None if elapsed >= timeout - _GRAIN else min(delay, timeout - elapsed)

    def holds_up(self, now: float, delay: float) -> bool:
        """Return whether waiting here for the next attempt would occupy the task slot for too long."""
        patience = self._policy.patience
        return patience is not None and now - self._begun + delay > patience

    def left(self, now: float, delay: float, refused: int | None = None) -> Retry:
        """Return the retry for a later generation, at least ``delay`` seconds from now."""
        policy = self._policy
        # After a slow failure, such as a request without a response, the wait is at least as long as the
        # attempt was.
        wait = min(max(now - self._begun, policy.patience or 0.0), policy.max_delay)
        if policy.timeout is not None:
            wait = min(wait, self._since + policy.timeout - now)
        return Retry(self._since, self.failures, now + max(delay, wait), refused)


class Persistence:
    """Retry an operation until its time-out, or until ``given_up`` is set."""

    def __init__(
        self,
        label: str,
        clock: Clock,
        retry: RetryPolicy,
        given_up: Signal,
        measures: Measures | None = None,
    ) -> None:
        self._label = label
        self._clock = clock
        self._retry = retry
        self._given_up = given_up
        self._measures = measures or Measures(clock)

    def __call__(self, what: str, attempt: Callable[..., T], *arguments: object) -> T:
        attempts: Attempts | None = None
        while True:
            try:
                return attempt(*arguments)
            except RetriableException as error:
                attempts = attempts or Attempts(self._retry)
                self._measures.failed()
                delay = attempts.failed(self._clock.now(), error.retry_after)
                if delay is None or self._given_up.wait(delay):
                    raise ConnectException(
                        f"{self._label}: {what} failed {attempts.failures} times, the last time with: {error}"
                    ) from error
                self._measures.retried()
                log.warning("%s: %s failed, retrying: %s", self._label, what, error)
