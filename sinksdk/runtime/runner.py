"""Runs a driver in a thread of its own, for whoever wants to start it, wait for it, and hear of its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Protocol

from sinksdk.context import ClosingReason

log = logging.getLogger(__name__)

UncaughtHandler = Callable[[BaseException], None]
"""Told of what ended a driver: once, in the driver's thread. What it raises itself is logged."""


class Driver(Protocol):
    """What is run: :class:`~sinksdk.runtime.driver.ConnectorDriver`."""

    def run(self, *, until_caught_up: bool = False) -> object:
        """Run to the end."""
        ...

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """Ask for the end, from any thread."""
        ...


class ConnectorRunner:
    """Runs one connector's driver in the background. A runner starts once.

    Args:
        driver: what is run.
        on_uncaught: told of the exception that ended it, if one did, before :meth:`await_termination`
            raises it: a ``MissingSourceTopicException`` names the topics in ``topics`` (KIP-662). By then
            what could be committed is, and the status in the store says FAILED.
        until_caught_up: end when everything there is now is committed, tails included.
    """

    def __init__(
        self, driver: Driver, *, on_uncaught: UncaughtHandler | None = None, until_caught_up: bool = False
    ) -> None:
        self._driver = driver
        self._on_uncaught = on_uncaught
        self._until_caught_up = until_caught_up
        self._ended: Future[None] = Future()
        # A daemon: a process whose main thread ends does not wait for calls into Spark that hang.
        self._thread = threading.Thread(target=self._run, name="driver", daemon=True)

    def start(self) -> None:
        """Start running. Raises RuntimeError when it was started before."""
        self._thread.start()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait for the end.

        Args:
            timeout: seconds to wait at most; None: as long as it takes.

        Returns:
            Whether it has ended, without an exception.

        Raises:
            MissingSourceTopicException: a subscribed topic is not there, or no longer.
            FencedException: a newer driver has taken over.
            Exception: whatever else ended it; each time it is asked.
        """
        if timeout != 0:
            wait([self._ended], timeout)
        if not self._ended.done():
            return False
        self._ended.result()
        return True

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """Ask for the end: what runs flushes, commits and closes first. Does not wait for it."""
        self._driver.close(reason)

    def _run(self) -> None:
        try:
            self._driver.run(until_caught_up=self._until_caught_up)
        except BaseException as error:  # noqa: BLE001 - raised again where somebody waits for the end
            self._tell(error)
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    def _tell(self, error: BaseException) -> None:
        if self._on_uncaught is None:
            return
        try:
            self._on_uncaught(error)
        except Exception:
            log.exception("on_uncaught raised; what it was told of: %s", error)
