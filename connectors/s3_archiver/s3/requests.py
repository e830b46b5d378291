"""Requests made concurrently, and again after transient errors."""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from sinksdk import RetriableException

Beside = Callable[[Callable[[], None]], Callable[[], None]]
"""Runs something beside the task's thread, and returns what waits for its end; handed in, so that tests
have no threads."""


def in_a_thread(run: Callable[[], None]) -> Callable[[], None]:
    """Run in a new daemon thread: cheap compared with a part, and a hang does not block the exit.

    None is left that had to be stopped, or would be missing in a forked process.
    """
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="part", daemon=True)
    thread.start()
    return thread.join


AT_ONCE: Final = 8
"""Most requests of a group's files that are made at a time."""

_PATIENCE: Final = 5.0  # seconds without a request that succeeds

_LONGEST_PAUSE: Final = 1.0  # seconds

Together = Callable[[Iterable[Callable[[], object]]], None]
"""Makes requests that do not depend on one another. After one has failed it begins no more, and raises that
error when those under way have ended. Handed in, so that tests have no threads."""


def one_by_one(requests: Iterable[Callable[[], object]]) -> None:
    """Make requests in their order, without threads: a :data:`Together`."""
    for request in requests:
        request()


def together(requests: Iterable[Callable[[], object]]) -> None:
    """Make up to eight requests at a time, in daemon threads: a :data:`Together`."""
    waiting = deque(requests)
    if len(waiting) <= 1:
        one_by_one(waiting)
        return
    errors: deque[BaseException] = deque()

    def work() -> None:
        while not errors:
            try:
                request = waiting.popleft()
            except IndexError:
                return
            try:
                request()
            except BaseException as error:  # noqa: BLE001 - whatever it is, the task's thread must hear of it
                errors.append(error)

    for wait in [in_a_thread(work) for _ in range(min(AT_ONCE, len(waiting)))]:
        wait()
    if errors:
        raise errors[0]


class Rounds:
    """Makes requests again that failed passingly, without those that succeeded: a :data:`Together`.

    An S3 that is short of capacity lets some requests through. Whoever gave up at the first that it refuses,
    and later made all of them anew, would never come to the end of a large group. Where none gets through,
    it is as if requests were made once.

    Args:
        together: makes them once.
        room: seconds from now after which no further round begins.
        backoff: seconds before the second round; doubles up to one second.
        clock: seconds.
        sleep: waits so many seconds.
    """

    def __init__(
        self,
        together: Together,
        room: Callable[[], float],
        backoff: float,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._together = together
        self._room = room
        self._backoff = backoff
        self._clock = clock
        self._sleep = sleep

    def __call__(self, requests: Iterable[Callable[[], object]]) -> None:
        """Make them. Raises what the last round failed with."""
        waiting = dict(enumerate(requests))
        until = self._clock() + self._room()
        patient_until, pause = 0.0, min(self._backoff, _LONGEST_PAUSE)
        while True:
            done: list[int] = []
            try:
                self._together([partial(_noted, done, *item) for item in waiting.items()])
            except RetriableException:
                for number in done:
                    del waiting[number]
                now = self._clock()
                if done:
                    patient_until = min(now + _PATIENCE, until)
                if now + pause > patient_until:
                    raise
            else:
                return
            self._sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _noted(done: list[int], number: int, request: Callable[[], object]) -> None:
    request()
    done.append(number)
