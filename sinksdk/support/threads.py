"""The system's threads for the engine (:class:`sinksdk.engine.clock.Threads`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from sinksdk.support.logs import same_subject

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
