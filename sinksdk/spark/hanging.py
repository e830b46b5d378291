"""Notices author's code that does not come back, and says where it is."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.support.logs import same_subject, stack_of

log = logging.getLogger(__name__)

_LOOKS: Final = 10  # within the time that author's code may take
_LINES: Final = 12  # of its stack: the innermost are the author's

T = TypeVar("T")


def whereabouts(thread: int) -> str:
    """Tells at which lines of code a thread is, the innermost last."""
    return "it is at\n{}".format("".join(stack_of(thread)[-_LINES:]).rstrip())


class HangWatch:
    """Watches the thread that makes it, from one of its own, while the block runs.

    Args:
        label: whose code it is, for messages.
        limit: seconds that may pass between two signs of life; 0: any time.
        clock: time.
        report: hands a hang on, with the lines of code it is at; whether that worked. It is asked again until
            it has: the store may be away while the code hangs.
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
        self._ended = threading.Event()
        self._thread = threading.Thread(target=same_subject(self._run), name="hang-watch", daemon=True)

    def __enter__(self) -> Self:
        if self._limit:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        if self._limit:
            self._thread.join()

    def alive(self, function: Callable[[], T]) -> Callable[[], T]:
        """The same function; calling it is a sign of life."""

        def called() -> T:
            self._alive_at = self._clock.now()
            return function()

        return called

    def look(self) -> None:
        """Report a hang, if there is one that was not reported yet."""
        silent = self._clock.now() - self._alive_at
        if self._is_reported:
            return
        if silent < self._limit:
            self._hang = None  # it has come back before anybody heard of it
            return
        if self._hang is None:
            where = whereabouts(self._watched)
            self._hang = f"{self._label}: its code has not come back for {silent:.1f} s; {where}"
            log.error("%s", self._hang)
        self._is_reported = self._report(self._hang)

    def _run(self) -> None:
        while not self._ended.wait(self._limit / _LOOKS):
            self.look()
