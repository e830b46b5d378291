"""Beside a source's task: stops it when its generation closes, and says how far it is."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sinksdk.engine.clock import Clock, Threads
from sinksdk.engine.outcome import Failure
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.errors import ConnectException, FencedException
from sinksdk.spark.closing_watch import ClosingWatch
from sinksdk.spark.hanging import whereabouts
from sinksdk.spark.source_calls import WatchedSourceTask
from sinksdk.spark.source_progress import SourceProgressWriter
from sinksdk.support.logs import same_subject

log = logging.getLogger(__name__)

_SOONEST = 0.01  # seconds


class SourceTaskWatch:
    """Looks after one task that runs.

    A task is asked to stop once, and given up when its time is over: it may wait in ``poll`` for ever. When
    its generation is over it is given up at once, whatever it does cannot count any more. Made by the task's
    own thread, and used by another one.

    A method other than ``poll`` that does not return has failed: the task is given up then, too, so that what
    is told is true should it ever come back.

    Args:
        worker: who does it.
        task: the task itself.
        label: connector and task, for messages.
        hang_timeout: seconds that a method of the task may take, other than ``poll``; 0: any time.
        closing: knows whether the generation closes.
        progress: says how far it is.
        interval: seconds between two looks whether it closes.
        clock: time.
        beside: calls something in a thread of its own: the author's ``stop`` may hang.
    """

    def __init__(
        self,
        worker: WorkerSourceTask,
        task: WatchedSourceTask,
        closing: ClosingWatch,
        progress: SourceProgressWriter,
        *,
        label: str,
        hang_timeout: float,
        interval: float,
        clock: Clock,
        beside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._worker = worker
        self._task = task
        self._label = label
        self._hang_timeout = hang_timeout or math.inf
        self._thread = threading.get_ident()
        self._closing = closing
        self._progress = progress
        self._interval = interval
        self._clock = clock
        self._beside = beside
        self._look_at = clock.now()
        self._cancel_at = math.inf
        self._is_asked = False
        self.hang: Failure | None = None
        """Which method did not return, and where it was."""

    def turn(self) -> float:
        """Do what is due; seconds until something is again."""
        if self._clock.now() >= self._look_at:
            # Give or take a fifth: many tasks begin at one moment.
            self._look_at = self._clock.now() + self._interval * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            self._closing.look_again()
            self._heed()
        if self._clock.now() >= self._cancel_at:
            where = f"{self._label}: it did not stop in time; {self._where()}"
            self._progress.tell_of_hang(where)
            self._give_up("did not stop in time")
        self._look_for_hang()
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

    def _look_for_hang(self) -> None:
        """Report a method that does not return, once, as a failure."""
        now = self._clock.now()
        late = (call for call in self._task.running() if now - call.since >= self._hang_timeout)
        call = next((call for call in late if not call.may_wait), None)
        if call is None or self.hang is not None:
            return
        what = f"{self._label}: {call.method} has not returned for {now - call.since:.1f} s"
        where = f"{what}; {whereabouts(call.thread)}"
        self.hang = Failure(ConnectException.__name__, what, where)
        self._progress.tell_of_hang(where, self.hang)
        self._worker.cancel()

    def _where(self) -> str:
        """At which lines the task is: in its author's code, or else in ours."""
        threads = {call.thread for call in self._task.running()} or {self._thread}
        return "\n".join(map(whereabouts, threads))


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
