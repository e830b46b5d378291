"""Simulations replace these clocks and threads of the engine."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return seconds on a clock that never jumps; only differences mean anything."""
        ...

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class WallClock(Clock, Protocol):
    def time(self) -> float:
        """Return seconds since the epoch, which may jump."""
        ...


class SystemWallClock(SystemClock):
    def time(self) -> float:
        return time.time()


class Signal(Protocol):
    def set(self) -> None: ...

    def is_set(self) -> bool: ...

    def wait(self, seconds: float) -> bool:
        """Wait for the signal at most so many seconds; return whether it is set."""
        ...


class Threads(Protocol):
    def lock(self) -> AbstractContextManager[object]:
        """Return a lock that is not re-entrant."""
        ...

    def signal(self) -> Signal: ...

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        """Call ``run`` periodically in a thread. The returned function ends that, after a running call."""
        ...

    def once(self, run: Callable[[], None]) -> Callable[[], None]:
        """Call ``run`` once in a thread; the returned function waits until it has returned."""
        ...


class OneThread:
    """Replaces threads in a simulation, which makes the calls of other threads itself."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def lock(self) -> AbstractContextManager[object]:
        return nullcontext()

    def signal(self) -> Signal:
        return _Flag(self._clock)

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002 - by hand
        return lambda: None

    def once(self, run: Callable[[], None]) -> Callable[[], None]:
        run()
        return lambda: None


class _Flag:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._set = False

    def set(self) -> None:
        self._set = True

    def is_set(self) -> bool:
        return self._set

    def wait(self, seconds: float) -> bool:
        if not self._set:
            self._clock.sleep(seconds)  # no other thread could set the signal during the sleep
        return self._set
