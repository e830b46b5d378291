"""SIGINT, SIGTERM and SIGHUP: the first one asks for the end, the second one is the end."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final, Self

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SHOW_CURSOR: Final = b"\x1b[?25h"  # a live display had hidden it


class ShutdownSignals:
    """Remembers the first signal; the second one ends the process at once with 128 + its number.

    Ending at once loses nothing: what is not committed is read again, what was begun outside is
    discarded by the next start. The handler itself does next to nothing, for it may interrupt any
    line of the main thread, also one that holds a lock; whoever waits asks :attr:`received`.
    Use it in the main thread, the only one that may set handlers.
    """

    def __init__(self) -> None:
        self._received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    @property
    def received(self) -> signal.Signals | None:
        """The first signal, once there was one."""
        return self._received

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._received is None:
            self._received = signal.Signals(number)
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        os.write(2, b"\nstopped at once: what was not committed is read again by the next run\n")
        os._exit(128 + number)
