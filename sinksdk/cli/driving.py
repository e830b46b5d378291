"""Running a driver while the main thread watches for signals."""

from __future__ import annotations

from concurrent.futures import Future
from threading import Thread

from sinksdk.cli.board import CAUGHT_UP, FAILED, REPLACED, STOPPED
from sinksdk.cli.live import LiveProgress
from sinksdk.cli.plain import PlainProgress
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.context import ClosingReason
from sinksdk.errors import FencedException
from sinksdk.runtime.driver import ConnectorDriver

_LOOK = 0.1  # seconds between looks whether a signal came


def drive(
    driver: ConnectorDriver,
    signals: ShutdownSignals,
    progress: LiveProgress | PlainProgress,
    *,
    until_caught_up: bool,
) -> None:
    """Run a driver to its end; the first signal closes it.

    The driver runs in a thread of its own: calls into Spark block, and a signal must be answered
    promptly nevertheless.

    Raises:
        Exception: what ``driver.run`` raised.
    """
    ended: Future[None] = Future()

    def run() -> None:
        try:
            driver.run(until_caught_up=until_caught_up)
        except BaseException as error:  # noqa: BLE001 - raised again in the main thread
            ended.set_exception(error)
        else:
            ended.set_result(None)

    thread = Thread(target=run, name="driver", daemon=True)
    thread.start()
    is_closing = False
    while thread.is_alive():
        thread.join(_LOOK)
        if signals.received and not is_closing:
            is_closing = True
            progress.note(
                f"{signals.received.name}: closing, partial batches are flushed and committed "
                f"(a second signal stops at once)"
            )
            driver.close(ClosingReason.SHUTDOWN)
    if isinstance(ended.exception(), FencedException):
        progress.over(REPLACED)
    elif ended.exception() is not None:
        progress.over(FAILED)
    else:
        progress.over(STOPPED if is_closing else CAUGHT_UP)
    ended.result()
