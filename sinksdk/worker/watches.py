"""Threads watch a running task for close requests, and for hangs of the author's code."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self, TypeVar

from sinksdk.engine.clock import Clock, Threads, WallClock
from sinksdk.engine.task_run import ClosingRequest
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.errors import ConnectException, FencedException
from sinksdk.model.outcome import Failure
from sinksdk.source import SourceTask
from sinksdk.store import Store, closing_request, is_current
from sinksdk.support.delays import jitter
from sinksdk.support.logs import Outage, stack_of
from sinksdk.support.threads import SystemThreads, start_thread
from sinksdk.worker.attempts import Attempt
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.progress import SourceProgressWriter

log = logging.getLogger(__name__)

_HANG_CHECKS: Final = 10  # checks within the time that a call of the author's code may take
_STACK_LINES: Final = 12  # innermost lines of a stack, which are the author's
_SOONEST: Final = 0.01  # seconds

T = TypeVar("T")


class ClosingWatch:
    def __init__(self, store: Store, spec: GenerationSpec, clock: WallClock) -> None:
        self._store = store
        self._spec = spec
        self._clock = clock
        self._request: ClosingRequest | None = None
        self._is_over = False
        self._outage = Outage(log, "checking for a close request")

    def request(self) -> ClosingRequest | None:
        if self._is_over:
            raise FencedException(
                f"generation {self._spec.generation} of connector {self._spec.connector} was replaced by a "
                f"newer one"
            )
        return self._request

    def check(self) -> None:
        connector, generation = self._spec.connector, self._spec.generation
        if not is_current(self._store, connector, generation):
            self._is_over = True
        elif (closing := closing_request(self._store, connector, generation)) is not None:
            self._request = ClosingRequest(closing.reason, closing.timeout, self._monotonic(closing.asked))

    def _monotonic(self, asked: float | None) -> float | None:
        """Convert seconds since the epoch to the task's monotonic clock."""
        return None if asked is None else self._clock.now() - max(self._clock.time() - asked, 0.0)

    def check_or_log(self) -> None:
        try:
            self.check()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("cannot check for a close request, retrying: %s", error)


# A context manager that checks for a close request at an interval while its block runs, and yields the
# function that returns the request.
Watch = Callable[[ClosingWatch, float], AbstractContextManager[Callable[[], ClosingRequest | None]]]


def check_periodically(watch: ClosingWatch, interval: float, wait: Callable[[float], bool]) -> None:
    while not wait(interval * jitter()):
        watch.check_or_log()


@contextmanager
def watch_in_thread(watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
    watch.check()
    stopped = threading.Event()
    # A slow store must not delay the task.
    thread = start_thread(lambda: check_periodically(watch, interval, stopped.wait), "closing-watch")
    try:
        yield watch.request
    finally:
        stopped.set()
        thread.join()


def whereabouts(thread: int) -> str:
    """Return the line that a thread is at, then its stack, the innermost frame last."""
    stack = stack_of(thread)[-_STACK_LINES:]
    line = ": ".join(part.strip() for part in stack[-1].splitlines()[:2]) if stack else "its end"
    # Status and messages show only the first line of a hang.
    return "it is at {}\n{}".format(line, "".join(stack).rstrip())


class HangWatch:
    """A thread reports when the creating thread calls no :meth:`alive` function for ``limit`` seconds.

    A ``limit`` of 0 switches the watch off. ``report`` returns whether it has stored the hang.
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
        self._end: Callable[[], None] = lambda: None

    def __enter__(self) -> Self:
        if self._limit:
            self._end = SystemThreads("hang watch").every(self._limit / _HANG_CHECKS, self.check)
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def alive(self, function: Callable[[], T]) -> Callable[[], T]:
        """Return the function; each call resets the watch."""

        def called() -> T:
            self._alive_at = self._clock.now()
            return function()

        return called

    def check(self) -> None:
        silent = self._clock.now() - self._alive_at
        if self._is_reported:
            return
        if silent < self._limit:
            self._hang = None  # the code returned before the hang was stored
            return
        if self._hang is None:
            where = whereabouts(self._watched)
            self._hang = f"{self._label}: its code has not returned for {silent:.1f} s; {where}"
            log.error("%s", self._hang)
        # The report is repeated until it succeeds, because the store may be unavailable while the code hangs.
        self._is_reported = self._report(self._hang)


@dataclass(frozen=True, slots=True, eq=False)
class RunningCall:
    method: str
    since: float  # start of the call, on the monotonic clock
    thread: int


def _watched(method: str) -> Any:
    def call(self: WatchedSourceTask, *arguments: object) -> Any:
        running = RunningCall(method, self._clock.now(), threading.get_ident())
        self._running.append(running)
        try:
            return getattr(self._task, method)(*arguments)
        finally:
            self._running.remove(running)

    call.__name__ = method  # errors name the method
    return call


class WatchedSourceTask(SourceTask):
    initialize = _watched("initialize")
    start = _watched("start")
    poll = _watched("poll")
    commit = _watched("commit")
    commit_record = _watched("commit_record")
    stop = _watched("stop")
    stopped = _watched("stopped")

    def __init__(self, task: SourceTask, clock: Clock, hang_timeout: float) -> None:
        self._task = task
        self._clock = clock
        self._hang_timeout = hang_timeout or math.inf
        self._thread = threading.get_ident()
        self._running: list[RunningCall] = []

    def hanging(self) -> tuple[RunningCall, float] | None:
        """Return the oldest call that takes too long, with its seconds, from any thread."""
        now = self._clock.now()
        for call in tuple(self._running):
            # A long ``poll`` is no hang: a source without new records looks the same.
            if call.method != "poll" and now - call.since >= self._hang_timeout:
                return call, now - call.since
        return None

    def whereabouts(self) -> str:
        # Between two calls the task is in the engine's code.
        threads = {call.thread for call in tuple(self._running)} or {self._thread}
        return "\n".join(map(whereabouts, threads))


class SourceTaskWatch:
    def __init__(
        self,
        attempt: Attempt,
        worker: WorkerSourceTask,
        task: WatchedSourceTask,
        progress: SourceProgressWriter,
        *,
        interval: float,
        start_call: Callable[[Callable[[], None]], object],
    ) -> None:
        self._attempt = attempt
        self._worker = worker
        self._task = task
        self._progress = progress
        self._interval = interval
        self._run_in_thread = start_call
        self._closing = ClosingWatch(attempt.store, attempt.spec, attempt.clock)
        self._check_at = attempt.clock.now()
        self._cancel_at = math.inf
        self.hang: Failure | None = None

    def turn(self) -> float:
        """Run what is due; return the seconds until the next turn."""
        clock = self._attempt.clock
        if clock.now() >= self._check_at:
            self._check_at = clock.now() + self._interval * jitter()
            self._closing.check_or_log()
            self._check_request()
        if clock.now() >= self._cancel_at:
            self._progress.report_hang(
                f"{self._attempt.name}: it did not stop in time; {self._task.whereabouts()}"
            )
            self._cancel("it did not stop in time")
        self._check_hang()
        self._progress.write_if_due(self._worker)
        due = min(self._check_at, self._cancel_at, self._progress.next)
        return max(due - clock.now(), _SOONEST)

    def _check_request(self) -> None:
        try:
            request = self._closing.request()
        except FencedException as error:
            # From now on the task's writes have no effect.
            self._cancel(str(error))
            return
        if request is not None and self._cancel_at == math.inf:
            requested_at = self._attempt.clock.now() if request.asked is None else request.asked
            # The task may wait in ``poll`` without limit.
            self._cancel_at = requested_at + request.timeout
            log.info("closing (%s): stopping the task", request.reason)
            self._run_in_thread(self._worker.stop)  # the author's ``stop`` may hang

    def _cancel(self, why: str) -> None:
        self._cancel_at = self._check_at = math.inf
        log.warning("the task is cancelled, and its uncommitted records are read again: %s", why)
        self._worker.cancel()

    def _check_hang(self) -> None:
        if self.hang is not None or (found := self._task.hanging()) is None:
            return
        call, seconds = found
        what = f"{self._attempt.name}: {call.method} has not returned for {seconds:.1f} s"
        where = f"{what}; {whereabouts(call.thread)}"
        self.hang = Failure(ConnectException.__name__, what, where)
        self._progress.report_hang(where, self.hang)
        # If the method returns later, the task stays reported as failed.
        self._worker.cancel()


@contextmanager
def watching(watch: SourceTaskWatch, threads: Threads) -> Iterator[None]:
    ended = threads.signal()

    def run() -> None:
        delay = watch.turn()
        while not ended.wait(delay):
            delay = watch.turn()

    join = threads.once(run)
    try:
        yield
    finally:
        ended.set()
        join()
