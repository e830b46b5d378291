"""Clients of S3, and requests that are made concurrently and repeated after transient errors."""

from __future__ import annotations

import contextvars
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from sinksdk import RetriableException
from sinksdk.connectors.s3_archiver.s3.client import S3, Location
from sinksdk.connectors.s3_archiver.s3.errors import S3Error
from sinksdk.connectors.s3_archiver.s3.settings import UploadSettings
from sinksdk.support.delays import Delays
from sinksdk.support.s3 import NO_SUCH_KEY

# Runs a function concurrently with the task's thread, and returns one that waits for its end.
Beside = Callable[[Callable[[], None]], Callable[[], None]]


def in_a_thread(run: Callable[[], None]) -> Callable[[], None]:
    # A daemon thread takes little time compared with a part. If it hangs, the process can still exit, and a
    # forked process needs no pool of threads.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="part", daemon=True)
    thread.start()
    return thread.join


AT_ONCE: Final = 8  # requests of a group's files made concurrently

# Makes independent requests. After a failure it begins no more, and raises once those in flight finished.
Together = Callable[[Iterable[Callable[[], object]]], None]


def one_by_one(requests: Iterable[Callable[[], object]]) -> None:
    for request in requests:
        request()


def together(requests: Iterable[Callable[[], object]]) -> None:
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
            except BaseException as error:  # noqa: BLE001 - raised in the task's thread
                errors.append(error)

    for wait in [in_a_thread(work) for _ in range(min(AT_ONCE, len(waiting)))]:
        wait()
    if errors:
        raise errors[0]


class Rounds:
    """Repeats requests that failed with a transient error, without those that succeeded."""

    def __init__(
        self,
        together: Together,
        room: Callable[[], float],  # seconds from now until the last round begins
        delays: Delays,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._together = together
        self._room = room
        self._delays = delays
        self._clock = clock
        self._sleep = sleep

    def __call__(self, requests: Iterable[Callable[[], object]]) -> None:
        # When S3 lacks capacity, some requests succeed: if all were repeated after each refusal, a large
        # group would never complete.
        waiting = dict(enumerate(requests))
        until = self._clock() + self._room()
        deadline = 0.0  # if no request succeeds, none is repeated
        for failures in itertools.count(1):
            done: list[int] = []
            try:
                self._together([partial(_record_done, done, *item) for item in waiting.items()])
            except RetriableException:
                for number in done:
                    del waiting[number]
                now = self._clock()
                if done:
                    deadline = min(now + self._delays.total, until)
                delay = self._delays.before(deadline, failures, now)
                if delay is None:
                    raise
                self._sleep(delay)
            else:
                return


def _record_done(done: list[int], number: int, request: Callable[[], object]) -> None:
    request()
    done.append(number)


class Connect(Protocol):
    """Creates a client; ``endpoint`` overrides ``store.url`` and is empty for AWS's own."""

    def __call__(self, config: UploadSettings, endpoint: str | None = None) -> S3: ...


def connect(config: UploadSettings, endpoint: str | None = None) -> S3:
    from sinksdk.connectors.s3_archiver.s3 import boto_client  # noqa: PLC0415 - loads boto3

    return boto_client.connect(config, endpoint)


def read_if_there(s3: S3, location: Location) -> bytes | None:
    try:
        with s3.read(location) as content:
            return content.read()
    except S3Error as error:
        if error.code == NO_SUCH_KEY:
            return None
        raise
