"""Beside a source's task: stops it when its generation closes, and says how far it is."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sinksdk.engine.clock import Clock
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.engine.threads import Threads
from sinksdk.errors import FencedException
from sinksdk.logs import same_subject
from sinksdk.spark.closing_watch import ClosingWatch
from sinksdk.spark.source_progress import SourceProgressWriter

log = logging.getLogger(__name__)

_SOONEST = 0.01  # seconds


class SourceTaskWatch:
    """Looks after one task that runs.

    A task is asked to stop once, and given up when its time is over: it may wait in ``poll`` for ever. When
    its generation is over it is given up at once, whatever it does cannot count any more.

    Args:
        worker: who does it.
        closing: knows whether the generation closes.
        progress: says how far it is.
        interval: seconds between two looks whether it closes.
        clock: time.
        beside: calls something in a thread of its own: the author's ``stop`` may hang.
    """

    def __init__(
        self,
        worker: WorkerSourceTask,
        closing: ClosingWatch,
        progress: SourceProgressWriter,
        *,
        interval: float,
        clock: Clock,
        beside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._worker = worker
        self._closing = closing
        self._progress = progress
        self._interval = interval
        self._clock = clock
        self._beside = beside
        self._look_at = clock.now()
        self._cancel_at = math.inf
        self._is_asked = False

    def turn(self) -> float:
        """Do what is due; seconds until something is again."""
        if self._clock.now() >= self._look_at:
            # Give or take a fifth: many tasks begin at one moment.
            self._look_at = self._clock.now() + self._interval * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            self._closing.look_again()
            self._heed()
        if self._clock.now() >= self._cancel_at:
            self._give_up("did not stop in time")
        self._progress.write_if_due(self._worker)
        due = min(self._look_at, self._cancel_at, self._progress.next)
        return max(due - self._clock.now(), _SOONEST)

    def _heed(self) -> None:
        try:
            request = self._closing.request()
        except FencedException as error:
            self._give_up(f"is over: {error}")
            return
        if request is not None and not self._is_asked:
            self._is_asked = True
            begun = self._clock.now() if request.asked is None else request.asked
            self._cancel_at = begun + request.timeout
            log.info("closing (%s): the task is asked to stop", request.reason)
            self._beside(self._worker.stop)

    def _give_up(self, why: str) -> None:
        self._cancel_at = self._look_at = math.inf
        log.warning("the task %s; it is given up, what it had not committed is read again", why)
        self._worker.cancel()


@contextmanager
def watching(watch: SourceTaskWatch, threads: Threads) -> Iterator[None]:
    """Let it take its turns in a thread, while the block runs."""
    ended = threads.signal()

    def run() -> None:
        delay = watch.turn()
        while not ended.wait(delay):
            delay = watch.turn()

    join = threads.beside(same_subject(run))
    try:
        yield
    finally:
        ended.set()
        join()
