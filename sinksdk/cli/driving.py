"""Running a driver while the main thread watches for signals."""

from __future__ import annotations

from sinksdk.cli.board import CAUGHT_UP, FAILED, REPLACED, STOPPED
from sinksdk.cli.live import LiveProgress
from sinksdk.cli.plain import PlainProgress
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.context import ClosingReason
from sinksdk.errors import FencedException
from sinksdk.runtime.runner import ConnectorRunner, Driver

_LOOK = 0.1  # seconds between looks whether a signal came


def drive(
    driver: Driver,
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
    runner = ConnectorRunner(driver, until_caught_up=until_caught_up)
    runner.start()
    is_closing = False
    try:
        while not runner.await_termination(_LOOK):
            if signals.received and not is_closing:
                is_closing = True
                progress.note(
                    f"{signals.received.name}: closing, partial batches are flushed and committed "
                    f"(a second signal stops at once)"
                )
                runner.close(ClosingReason.SHUTDOWN)
    except FencedException:
        progress.over(REPLACED)
        raise
    except BaseException:
        progress.over(FAILED)
        raise
    progress.over(STOPPED if is_closing else CAUGHT_UP)
