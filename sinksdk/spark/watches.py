"""Watches of a running task: for close requests in the store, and for hangs of the task's thread."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final, Self, TypeVar

from sinksdk.engine.clock import Clock, WallClock
from sinksdk.engine.worker import ClosingRequest
from sinksdk.errors import ConnectException, FencedException
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import Store, asked_to_close, is_current
from sinksdk.support.logs import Outage, same_subject, stack_of

log = logging.getLogger(__name__)

_HANG_LOOKS: Final = 10  # within the time that author's code may take
_STACK_LINES: Final = 12  # the innermost are the author's

T = TypeVar("T")


class ClosingWatch:
    """The close request or the end of a generation, as of the last check."""

    def __init__(self, store: Store, spec: GenerationSpec, clock: WallClock) -> None:
        self._store = store
        self._spec = spec
        self._clock = clock
        self._request: ClosingRequest | None = None
        self._is_over = False
        self._outage = Outage(log, "looking whether to close")

    def request(self) -> ClosingRequest | None:
        """The request to close, once there is one. Raises FencedException when the generation is over."""
        if self._is_over:
            raise FencedException(f"generation {self._spec.generation} of {self._spec.connector} is over")
        return self._request

    def look(self) -> None:
        """Check now. Raises StoreUnavailable."""
        connector, generation = self._spec.connector, self._spec.generation
        if not is_current(self._store, connector, generation):
            self._is_over = True
        elif (closing := asked_to_close(self._store, connector, generation)) is not None:
            self._request = ClosingRequest(closing.reason, closing.timeout, self._monotonic(closing.asked))

    def _monotonic(self, asked: float | None) -> float | None:
        """Converts the time of the request from the epoch to the task's monotonic clock."""
        return None if asked is None else self._clock.now() - max(self._clock.time() - asked, 0.0)

    def look_again(self) -> None:
        """As :meth:`look`; without a response the next check repeats it."""
        try:
            self.look()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("whether to close cannot be seen, it is looked again: %s", error)


Watch = Callable[[ClosingWatch, float], AbstractContextManager[Callable[[], ClosingRequest | None]]]
"""Runs a watch at an interval while the block runs; yields the function for the request."""


def look_now_and_then(watch: ClosingWatch, interval: float, wait: Callable[[float], bool]) -> None:
    """Check until the wait is over, at the interval +-20 %, since many tasks start at the same moment."""
    while not wait(interval * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
        watch.look_again()


@contextmanager
def watch_in_thread(watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
    """Check in a separate thread, so that a slow store does not delay the task."""
    watch.look()
    stopped = threading.Event()
    look = same_subject(lambda: look_now_and_then(watch, interval, stopped.wait))
    thread = threading.Thread(target=look, name="closing-watch", daemon=True)
    thread.start()
    try:
        yield watch.request
    finally:
        stopped.set()
        thread.join()


def whereabouts(thread: int) -> str:
    """The stack of a thread, the innermost frame last."""
    return "it is at\n{}".format("".join(stack_of(thread)[-_STACK_LINES:]).rstrip())


class HangWatch:
    """Watches the thread that creates it, from another thread, while the block runs.

    Args:
        label: of the task, for messages.
        limit: maximum seconds between two calls of :meth:`alive` functions; 0: no limit.
        report: stores a hang with its stack; returns whether that succeeded. It is called until it does: the
            store may be unavailable while the code hangs.
    """

    def __init__(self, label: str, limit: float, clock: Clock, report: Callable[[str], bool]) -> None:
        self._label = label
        self._limit = limit
        self._clock = clock
        self._report = report
        self._watched = threading.get_ident()
        self._alive_at = clock.now()
        self._hang: str | None = None
        self._is_reported = False
        self._ended = threading.Event()
        self._thread = threading.Thread(target=same_subject(self._run), name="hang-watch", daemon=True)

    def __enter__(self) -> Self:
        if self._limit:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._limit:
            self._thread.join()

    def alive(self, function: Callable[[], T]) -> Callable[[], T]:
        """The same function; each call resets the watch."""

        def called() -> T:
            self._alive_at = self._clock.now()
            return function()

        return called

    def look(self) -> None:
        """Report a hang, if there is one that was not reported yet."""
        silent = self._clock.now() - self._alive_at
        if self._is_reported:
            return
        if silent < self._limit:
            self._hang = None  # the code has returned before the hang was stored
            return
        if self._hang is None:
            where = whereabouts(self._watched)
            self._hang = f"{self._label}: its code has not come back for {silent:.1f} s; {where}"
            log.error("%s", self._hang)
        self._is_reported = self._report(self._hang)

    def _run(self) -> None:
        while not self._ended.wait(self._limit / _HANG_LOOKS):
            self.look()
