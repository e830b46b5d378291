"""Time for a driver, handed in like everything else: seconds that pass, and the hour."""

from __future__ import annotations

import time
from typing import Protocol

from sinksdk.engine.clock import Clock, SystemClock


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
