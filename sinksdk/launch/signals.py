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
_POLL: Final = 0.1  # seconds between checks for a signal


class ClosingSignals:
    """Remembers the first signal; the second one has its usual effect."""

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        # Python allows handlers in the main thread only.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        self._restore_handlers()

    @property
    def are_handled(self) -> bool:
        return bool(self._before)

    def receive(self, number: signal.Signals) -> None:
        """Handle a signal that Spark's JVM received, and perhaps this process as well."""
        if self.received is None:
            self.received = number

    def _handle(self, number: int, _: FrameType | None) -> None:
        # A handler may interrupt the main thread while that holds a lock: it only sets what others poll.
        if self.received is None:
            self.received = signal.Signals(number)
        self._restore_handlers()

    def _restore_handlers(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal itself gave


def close_on_signal(
    running: RunningConnector,
    signals: ClosingSignals,
    report: Callable[[signal.Signals], None] = lambda _: None,
) -> None:
    """Wait until ``running`` has stopped; close it at the first signal."""
    is_closing = False
    # The connector runs in another thread, because calls into Spark would delay the response to a signal.
    while not running.wait(_POLL):
        if signals.received is not None and not is_closing:
            is_closing = True
            report(signals.received)
            running.close()
