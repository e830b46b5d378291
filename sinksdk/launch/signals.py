"""SIGINT, SIGTERM and SIGHUP close running connectors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from sinksdk.launch.running import RunningConnector

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LOOK: Final = 0.1  # seconds between checks for a signal


class ClosingSignals:
    """Remembers the first signal; the second one has its usual effect.

    The handler only sets a flag, since it may interrupt the main thread anywhere, also while that holds a
    lock; waiting code polls :attr:`received`. Outside the main thread, where Python allows no handlers, it
    does nothing.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal, once there was one."""
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._put_back()

    @property
    def are_handled(self) -> bool:
        """Whether signals of this process come here."""
        return bool(self._before)

    def hear(self, number: signal.Signals) -> None:
        """A signal has reached another process of ours, and perhaps this one as well."""
        if self.received is None:
            self.received = number

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
        self._put_back()

    def _put_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave


def close_on_signal(
    running: RunningConnector,
    signals: ClosingSignals,
    tell: Callable[[signal.Signals], None] = lambda _: None,
) -> None:
    """Wait for the end of ``running``; the first signal requests it.

    Args:
        running: runs in another thread: calls into Spark block, and a signal must be answered promptly
            nevertheless.
        tell: called with the signal.

    Raises:
        Exception: what has ended it.
    """
    is_closing = False
    while not running.wait(_LOOK):
        if signals.received is not None and not is_closing:
            is_closing = True
            tell(signals.received)
            running.close()
