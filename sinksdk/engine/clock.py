"""Time, handed in: the engine never asks the machine for it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds that pass, and a way to let them."""

    def now(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds since some fixed moment."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


class WallClock(Clock, Protocol):
    """A clock that also knows what time it is."""

    def time(self) -> float:
        """Seconds since the epoch; may jump. For what outlives the process."""
        ...


class SystemWallClock(SystemClock):
    """The machine's clocks."""

    def time(self) -> float:
        """Seconds since the epoch."""
        return time.time()
