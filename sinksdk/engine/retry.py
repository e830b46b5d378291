"""Retry delays, time-outs, and whether a task waits itself or leaves a retry to a later generation."""

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

_GRAIN = 1e-6  # seconds: clocks are floats, and a rest smaller than they resolve would never pass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Growing delays within a time-out.

    Args:
        timeout: seconds after the first failure until which attempts are made; None: no limit.
        max_delay: maximum seconds between two attempts.
        patience: seconds for which a task retries in place. Later retries are left to a later generation, so
            that a task that only waits releases its task slot. None: no such limit.
    """

    timeout: float | None = HOOK.total
    max_delay: float = HOOK.cap
    patience: float | None = None

    def delay(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after so many failures, from 1; ``asked`` replaces the growing delay."""
        if asked is not None:
            return max(asked, 0.0)
        return replace(HOOK, cap=self.max_delay).after(failures)


class Attempts:
    """The attempts at one operation.

    Args:
        begun: start of the first attempt of this generation, on the clock.
        earlier: attempts of earlier generations.
    """

    def __init__(self, policy: RetryPolicy, begun: float = 0.0, earlier: Retry | None = None) -> None:
        self._policy = policy
        self._begun = begun
        self.failures = earlier.attempts if earlier else 0
        self._since = earlier.since if earlier else 0.0

    def failed(self, now: float, asked: float | None = None) -> float | None:
        """Note a failure.

        Returns:
            Seconds to wait before the next attempt, clipped to the time-out; None: it is over.
        """
        if not self.failures:
            self._since = now
        self.failures += 1
        elapsed = now - self._since
        delay, timeout = self._policy.delay(self.failures, asked), self._policy.timeout
        if timeout is None:
            return delay
        return None if elapsed >= timeout - _GRAIN else min(delay, timeout - elapsed)

    def holds_up(self, now: float, delay: float) -> bool:
        """Whether waiting here for the next attempt would occupy the task slot for too long."""
        patience = self._policy.patience
        return patience is not None and now - self._begun + delay > patience

    def left(self, now: float, delay: float, refused: int | None = None) -> Retry:
        """The retry left to a later generation.

        A failure that took long, for example a request without a response, is retried after a wait at least
        as long.

        Args:
            delay: seconds before the next attempt, as :meth:`failed` returned.
            refused: offset of the first refused record, if the failure is about one.
        """
        policy = self._policy
        wait = min(max(now - self._begun, policy.patience or 0.0), policy.max_delay)
        if policy.timeout is not None:
            wait = min(wait, self._since + policy.timeout - now)
        return Retry(self._since, self.failures, now + max(delay, wait), refused)


class Persistence:
    """Retries an operation until its time-out, or until ``given_up`` is set."""

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
        """Call ``attempt`` until it returns.

        Raises:
            ConnectException: the time-out is over (the cause is the last RetriableException), or raised by
                ``attempt``.
        """
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
