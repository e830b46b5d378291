"""The system's threads: of the engine (:class:`sinksdk.engine.clock.Threads`), and of calls that may hang."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager
from typing import TypeVar

from sinksdk.support.logs import same_subject

T = TypeVar("T")

Background = Callable[[Callable[[], None]], None]
"""Runs something beside the caller's thread; handed in, so that a simulation has no threads."""


class SystemThreads:
    """The machine's threads, named after the worker that they are for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def lock(self) -> AbstractContextManager[object]:
        """A lock between threads."""
        return threading.Lock()

    def signal(self) -> threading.Event:
        """An event."""
        return threading.Event()

    def every(self, seconds: float, run: Callable[[], None]) -> Callable[[], None]:
        """A thread that calls something every so often; what ends it waits for the call that is running."""
        ended = threading.Event()

        def repeat() -> None:
            while not ended.wait(seconds):
                run()

        thread = threading.Thread(target=repeat, name=f"{self._name} every {seconds:g} s", daemon=True)
        thread.start()

        def end() -> None:
            ended.set()
            thread.join()

        return end

    def beside(self, run: Callable[[], None]) -> Callable[[], None]:
        """A daemon thread, so that a hang does not keep the process alive. The returned function joins it."""
        thread = threading.Thread(target=run, name=f"{self._name} aside", daemon=True)
        thread.start()
        return thread.join


def in_a_thread(run: Callable[[], None]) -> None:
    """Run in a daemon thread: one that hangs does not keep the process, as a pool's would."""
    name = getattr(run, "__qualname__", "background")
    threading.Thread(target=same_subject(run), name=name, daemon=True).start()


def beside(run: Callable[[], T], name: str) -> Future[T]:
    """Run in a daemon thread of this name; what it returns or raises is the future's.

    A daemon: a process whose main thread ends does not wait for calls into Spark or of clients that hang.
    """
    ended: Future[T] = Future()

    def run_to_end() -> None:
        try:
            result = run()
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits for it
            ended.set_exception(error)
        else:
            ended.set_result(result)

    threading.Thread(target=run_to_end, name=name, daemon=True).start()
    return ended


def has_ended(ended: Future[T], timeout: float | None = None) -> bool:
    """Wait at most ``timeout`` seconds for what runs :func:`beside`. Raises what ended it, at each call."""
    if timeout != 0:
        wait([ended], timeout)
    if not ended.done():
        return False
    ended.result()  # without a time-out: TimeoutError may be what has ended it
    return True
