"""Time and threads, handed in: the engine takes neither from the machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
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


class Signal(Protocol):
    """Set once, by whichever thread."""

    def set(self) -> None:
        """From now on it is set; who waits for it goes on."""
        ...

    def is_set(self) -> bool:
        """Whether it is."""
        ...

    def wait(self, seconds: float) -> bool:
        """Return once it is set, at the latest after so long; whether it is set."""
        ...


class Threads(Protocol):
    """What a worker needs where threads meet."""

    def lock(self) -> AbstractContextManager[object]:
        """A new lock. Not re-entrant."""
        ...

    def signal(self) -> Signal:
        """A new signal."""
        ...

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        """Call something every so often beside this thread.

        Returns:
            What ends it: it returns once no call runs any more, and none comes later.
        """
        ...

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        """Call something once beside this thread, which does not wait for it.

        Returns:
            What waits for its end, for who wants to.
        """
        ...


class OneThread:
    """No threads at all: for simulations, which call what others would when they like."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lock(self) -> AbstractContextManager[object]:
        """Nobody else wants it."""
        return nullcontext()

    def signal(self) -> Signal:
        """See :class:`Signal`."""
        return _Flag(self._clock)

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - by hand
        """Nothing comes by itself."""
        return lambda: None

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        """At once."""
        run()
        return lambda: None


class _Flag:
    """A signal for who cannot be interrupted while he waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._clock.sleep(seconds)
        return self._set
