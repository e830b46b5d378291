"""How a driver is asked to close, from any thread or signal handler."""

from __future__ import annotations

import threading

from sinksdk.context import ClosingReason


class ClosingSignal:
    """Asks the driver, from any thread or signal handler, to close what runs."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._reason: ClosingReason | None = None
        self._is_final = False

    def ask(self, reason: ClosingReason, *, final: bool = True) -> None:
        """Close; with ``final`` the driver ends, otherwise the next generation follows."""
        self._reason = reason
        self._is_final = self._is_final or final
        self._asked.set()

    @property
    def reason(self) -> ClosingReason | None:
        """Why, once it was asked."""
        return self._reason if self._asked.is_set() else None

    @property
    def is_final(self) -> bool:
        """Whether the driver shall end."""
        return self._is_final

    def wait(self, timeout: float) -> bool:
        """Wait until it is asked, at most so many seconds."""
        return self._asked.wait(timeout)

    def answered(self) -> None:
        """The generation has closed; a rebalance is over, an end stays asked for."""
        if not self._is_final:
            self._asked.clear()
