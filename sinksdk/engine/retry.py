"""How long to wait before trying again, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass

_FIRST_DELAY = 0.3  # Connect's RetryWithToleranceOperator starts with 300 ms
_GRAIN = 1e-6  # seconds: clocks are floats, and a rest smaller than they resolve would never pass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Growing delays within a budget.

    Args:
        timeout: seconds after the first failure until which attempts are made; None for ever.
        max_delay: most seconds between two attempts.
    """

    timeout: float | None = 300.0
    max_delay: float = 60.0

    def delay(self, failures: int, asked: float | None = None) -> float:
        """Seconds to wait after so many failures (1 is the first); ``asked`` replaces the growing delay."""
        if asked is not None:
            return max(asked, 0.0)
        return min(_FIRST_DELAY * 2.0 ** min(failures - 1, 30), self.max_delay)

    def is_spent(self, elapsed: float) -> bool:
        """Whether the budget is used up, this many seconds after the first failure."""
        return self.timeout is not None and elapsed >= self.timeout - _GRAIN


class Attempts:
    """One operation's attempts so far."""

    def __init__(self, policy: RetryPolicy) -> None:
        self._policy = policy
        self._failures = 0
        self._since = 0.0

    @property
    def failures(self) -> int:
        """How many attempts have failed."""
        return self._failures

    def failed(self, now: float, asked: float | None = None) -> float | None:
        """Note a failure.

        Returns:
            Seconds to wait before the next attempt, clipped to the budget, or None when it is spent.
        """
        if not self._failures:
            self._since = now
        self._failures += 1
        elapsed = now - self._since
        if self._policy.is_spent(elapsed):
            return None
        delay = self._policy.delay(self._failures, asked)
        timeout = self._policy.timeout
        return delay if timeout is None else min(delay, timeout - elapsed)
