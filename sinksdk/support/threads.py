"""Daemon threads: for the engine (:class:`sinksdk.engine.clock.Threads`), and for calls that may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import TypeVar

from sinksdk.support.logs import same_subject

T = TypeVar("T")

Background = Callable[[Callable[[], None]], None]
"""Runs a function in another thread; a parameter, so that a simulation needs no threads."""


def start_thread(run: Callable[[], None], name: str) -> threading.Thread:
    # Daemons: a process whose main thread ends does not wait for calls that hang.
    thread = threading.Thread(target=same_subject(run), name=name, daemon=True)
    thread.start()
    return thread


class SystemThreads:
    def __init__(self, name: str) -> None:
        self._name = name

    def lock(self) -> AbstractContextManager[object]:
        return threading.Lock()

    def signal(self) -> threading.Event:
        return threading.Event()

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        """Call a function periodically in a thread; the returned function stops it after the current call."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(seconds):
                run()

        thread = start_thread(repeat, f"{self._name} every {seconds:g} s")

        def end() -> None:
            ended.set()
            thread.join()

        return end

    def once(self, run: Callable[[], None]) -> Callable[[], None]:
        return start_thread(run, f"{self._name} once").join


def in_a_thread(run: Callable[[], None]) -> None:  # a Background
    start_thread(run, getattr(run, "__qualname__", "background"))


def start_call(run: Callable[[], T], name: str) -> Future[T]:
    ended: Future[T] = Future()

    def run_to_end() -> None:
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            ended.set_exception(error)
        else:
            ended.set_result(result)

    start_thread(run_to_end, name)
    return ended


def has_ended(ended: Future[T], timeout: float | None = None) -> bool:
    """Wait at most ``timeout`` seconds for a :func:`start_call`. Raises its exception, at each call."""
    if timeout != 0:
        wait([ended], timeout)
    if not ended.done():
        return False
    ended.result()  # no time-out here: a TimeoutError comes from the call itself
    return True
