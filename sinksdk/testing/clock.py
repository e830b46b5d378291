"""Time moved by hand."""

from __future__ import annotations


class ManualClock:
    """A clock that stands still until it is moved; sleeping moves it.

    Args:
        start: where it begins, in seconds.
    """

    def __init__(self, start: float = 1_000.0) -> None:
        self._now = start

    def now(self) -> float:
        """Seconds."""
        return self._now

    def time(self) -> float:
        """Seconds since the epoch."""
        return 1_700_000_000.0 + self._now

    def sleep(self, seconds: float) -> None:
        """Move on instead of waiting."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        if seconds < 0:
            message = f"time does not run backwards: {seconds}"
            raise ValueError(message)
        self._now += seconds
