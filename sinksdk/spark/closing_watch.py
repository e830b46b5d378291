"""How a running task sees that it shall close: it looks into the store now and then."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from sinksdk.engine.clock import Clock
from sinksdk.engine.worker import ClosingRequest
from sinksdk.errors import ConnectException, FencedException
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import Store, asked_to_close, is_current
from sinksdk.support.logs import Outage, same_subject

log = logging.getLogger(__name__)


class ClosingWatch:
    """Knows whether a generation shall close or is over, as of the last look.

    Args:
        store: where its driver asks.
        spec: which generation.
        clock: the task's.
        epoch: seconds since the epoch: the driver, which asks, may have another clock.
    """

    def __init__(
        self, store: Store, spec: GenerationSpec, clock: Clock, epoch: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._spec = spec
        self._clock = clock
        self._epoch = epoch
        self._request: ClosingRequest | None = None
        self._is_over = False
        self._outage = Outage(log, "looking whether to close")

    def request(self) -> ClosingRequest | None:
        """The request to close, once there is one. Raises FencedException when the generation is over."""
        if self._is_over:
            raise FencedException(f"generation {self._spec.generation} of {self._spec.connector} is over")
        return self._request

    def look(self) -> None:
        """Look now. Raises StoreUnavailable."""
        connector, generation = self._spec.connector, self._spec.generation
        if not is_current(self._store, connector, generation):
            self._is_over = True
        elif (closing := asked_to_close(self._store, connector, generation)) is not None:
            self._request = ClosingRequest(closing.reason, closing.timeout, self._on_our_clock(closing.asked))

    def _on_our_clock(self, asked: float | None) -> float | None:
        return None if asked is None else self._clock.now() - max(self._epoch() - asked, 0.0)

    def look_again(self) -> None:
        """As :meth:`look`; a store that does not answer is asked the next time."""
        try:
            self.look()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("whether to close cannot be seen, it is looked again: %s", error)


Watch = Callable[[ClosingWatch, float], AbstractContextManager[Callable[[], ClosingRequest | None]]]
"""Lets a watch look every so many seconds while the block runs; gives what asks it."""


def look_now_and_then(watch: ClosingWatch, interval: float, wait: Callable[[float], bool]) -> None:
    """Look until the wait is over, at the interval give or take a fifth: many tasks begin at one moment."""
    while not wait(interval * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
        watch.look_again()


@contextmanager
def watch_in_thread(watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
    """Look in a thread of its own: a store that is slow to answer does not hold the task up."""
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
