"""Showing how a connector ends while the main thread watches for signals."""

from __future__ import annotations

from signal import Signals

from sinksdk.cli.board import CAUGHT_UP, FAILED, REPLACED, STOPPED
from sinksdk.cli.live import LiveProgress
from sinksdk.cli.plain import PlainProgress
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.errors import FencedException
from sinksdk.launch.signals import Closeable, close_on_signal


def drive(connector: Closeable, signals: ShutdownSignals, progress: LiveProgress | PlainProgress) -> None:
    """Wait for a connector's end; the first signal closes it.

    Raises:
        Exception: what has ended it.
    """

    def tell(signal: Signals) -> None:
        progress.note(
            f"{signal.name}: closing, partial batches are flushed and committed "
            f"(a second signal stops at once)"
        )

    try:
        close_on_signal(connector, signals, tell)
    except FencedException:
        progress.over(REPLACED)
        raise
    except BaseException:
        progress.over(FAILED)
        raise
    progress.over(STOPPED if signals.received else CAUGHT_UP)
