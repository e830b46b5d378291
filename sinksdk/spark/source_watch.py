"""Watch of a source's task: stops it when its generation closes, and notices calls that hang."""

from __future__ import annotations

import logging
import math
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from sinksdk.engine.clock import Clock, Threads
from sinksdk.engine.outcome import Failure
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.errors import ConnectException, FencedException
from sinksdk.source import RecordMetadata, SourceRecord, SourceTask, SourceTaskContext
from sinksdk.spark.attempts import Attempt
from sinksdk.spark.progress import SourceProgressWriter
from sinksdk.spark.watches import ClosingWatch, whereabouts
from sinksdk.support.logs import same_subject

log = logging.getLogger(__name__)

_SOONEST: Final = 0.01  # seconds

T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class RunningCall:
    """A method that was called, at some time on the monotonic clock, and has not returned."""

    method: str
    since: float
    thread: int


class WatchedSourceTask(SourceTask):
    """An author's task with a record of its running methods.

    Args:
        hang_timeout: seconds that a method may take, other than ``poll``, which may wait without limit; 0: no
            limit.
    """

    def __init__(self, task: SourceTask, clock: Clock, hang_timeout: float) -> None:
        self._task = task
        self._clock = clock
        self._hang_timeout = hang_timeout or math.inf
        self._thread = threading.get_ident()
        self._running: list[RunningCall] = []

    def hanging(self) -> tuple[RunningCall, float] | None:
        """The oldest call that has taken too long, and its seconds. From any thread."""
        now = self._clock.now()
        for call in tuple(self._running):
            if call.method != "poll" and now - call.since >= self._hang_timeout:
                return call, now - call.since
        return None

    def whereabouts(self) -> str:
        """The stack of the task, in its author's code or in ours. From any thread."""
        threads = {call.thread for call in tuple(self._running)} or {self._thread}
        return "\n".join(map(whereabouts, threads))

    def initialize(self, context: SourceTaskContext) -> None:
        """Watched."""
        self._call(self._task.initialize, context)

    def start(self, config: Any) -> None:
        """Watched."""
        self._call(self._task.start, config)

    def poll(self) -> Sequence[SourceRecord] | None:
        """Without a time-out."""
        return self._call(self._task.poll)

    def commit(self) -> None:
        """Watched."""
        self._call(self._task.commit)

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        """Watched."""
        self._call(self._task.commit_record, record, metadata)

    def stop(self) -> None:
        """Watched."""
        self._call(self._task.stop)

    def stopped(self) -> None:
        """Watched."""
        self._call(self._task.stopped)

    def _call(self, method: Callable[..., T], *arguments: object) -> T:
        call = RunningCall(method.__name__, self._clock.now(), threading.get_ident())
        self._running.append(call)
        try:
            return method(*arguments)
        finally:
            self._running.remove(call)


class SourceTaskWatch:
    """Watches one running task. Created by the task's thread, used by another one.

    On a close request it stops the task, and cancels it after the time-out: it may wait in ``poll`` without
    limit. When the generation is over it cancels the task at once, since its writes have no effect any more.
    A method that hangs is reported as the task's failure; the task is cancelled, so that the report stays
    true if the method returns later.

    Args:
        interval: seconds between two checks for a close request.
        beside: calls a function in a separate thread: the author's ``stop`` may hang.
    """

    def __init__(
        self,
        attempt: Attempt,
        worker: WorkerSourceTask,
        task: WatchedSourceTask,
        progress: SourceProgressWriter,
        *,
        interval: float,
        beside: Callable[[Callable[[], None]], object],
    ) -> None:
        self._attempt = attempt
        self._worker = worker
        self._task = task
        self._progress = progress
        self._interval = interval
        self._beside = beside
        self._closing = ClosingWatch(attempt.store, attempt.spec, attempt.clock)
        self._look_at = attempt.clock.now()
        self._cancel_at = math.inf
        self.hang: Failure | None = None
        """The method that hangs, with its stack."""

    def turn(self) -> float:
        """Run what is due; seconds until the next turn."""
        clock = self._attempt.clock
        if clock.now() >= self._look_at:
            # +-20 %, since many tasks start at the same moment.
            self._look_at = clock.now() + self._interval * random.uniform(0.8, 1.2)  # noqa: S311 - no secret
            self._closing.look_again()
            self._look_for_request()
        if clock.now() >= self._cancel_at:
            self._progress.report_hang(
                f"{self._attempt.name}: it did not stop in time; {self._task.whereabouts()}"
            )
            self._cancel("did not stop in time")
        self._look_for_hang()
        self._progress.write_if_due(self._worker)
        due = min(self._look_at, self._cancel_at, self._progress.next)
        return max(due - clock.now(), _SOONEST)

    def _look_for_request(self) -> None:
        try:
            request = self._closing.request()
        except FencedException as error:
            self._cancel(f"is over: {error}")
            return
        if request is not None and self._cancel_at == math.inf:
            asked = self._attempt.clock.now() if request.asked is None else request.asked
            self._cancel_at = asked + request.timeout
            log.info("closing (%s): the task is asked to stop", request.reason)
            self._beside(self._worker.stop)

    def _cancel(self, why: str) -> None:
        self._cancel_at = self._look_at = math.inf
        log.warning("the task %s; it is given up, what it had not committed is read again", why)
        self._worker.cancel()

    def _look_for_hang(self) -> None:
        """Report a method that does not return, once, as a failure."""
        if self.hang is not None or (found := self._task.hanging()) is None:
            return
        call, seconds = found
        what = f"{self._attempt.name}: {call.method} has not returned for {seconds:.1f} s"
        where = f"{what}; {whereabouts(call.thread)}"
        self.hang = Failure(ConnectException.__name__, what, where)
        self._progress.report_hang(where, self.hang)
        self._worker.cancel()


@contextmanager
def watching(watch: SourceTaskWatch, threads: Threads) -> Iterator[None]:
    """Run the watch in a thread while the block runs."""
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
