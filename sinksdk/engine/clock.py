"""Time and threads for the engine, injected so that simulations can replace them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock that can sleep."""

    def now(self) -> float:
        """Seconds on a clock that never jumps; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None:
        """Return after so many seconds."""
        ...


class SystemClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class WallClock(Clock, Protocol):
    """A clock that also has the wall-clock time."""

    def time(self) -> float:
        """Seconds since the epoch; may jump. For times that outlive the process."""
        ...


class SystemWallClock(SystemClock):
    """The machine's clocks."""

    def time(self) -> float:
        return time.time()


class Signal(Protocol):
    """An event that any thread sets, once."""

    def set(self) -> None:
        """Set it and wake all waiting threads."""
        ...

    def is_set(self) -> bool:
        """Whether it has been set."""
        ...

    def wait(self, seconds: float) -> bool:
        """Return once it is set, after so many seconds at the latest; whether it is set."""
        ...


class Threads(Protocol):
    """A worker's locks, signals and threads."""

    def lock(self) -> AbstractContextManager[object]:
        """A new lock. Not re-entrant."""
        ...

    def signal(self) -> Signal:
        """A new signal."""
        ...

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        """Call something periodically in another thread.

        Returns:
            A function that ends it and returns once no call runs any more.
        """
        ...

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        """Call something once in another thread, without waiting for it.

        Returns:
            A function that waits for its end.
        """
        ...


class OneThread:
    """No threads: for simulations, which make the calls of other threads themselves."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def signal(self) -> Signal:
        return _Flag(self._clock)

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - by hand
        # The simulation calls ``run``.
        return lambda: None

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        run()
        return lambda: None


class _Flag:
    """A signal without a condition variable: single-threaded waits cannot be interrupted."""

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
