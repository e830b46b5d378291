"""Signals as the commands take them: the first one asks for the end, the second one is the end."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

from sinksdk.cli.display import LiveProgress, PlainProgress
from sinksdk.cli.progress import CAUGHT_UP, FAILED, REPLACED, STOPPED
from sinksdk.errors import FencedException
from sinksdk.launch.running import RunningConnector
from sinksdk.launch.signals import ClosingSignals, close_on_signal

_SHOW_CURSOR: Final = b"\x1b[?25h"  # a live display had hidden it


class ShutdownSignals(ClosingSignals):
    """Remembers the first signal; the second one ends the process at once with 128 + its number.

    Ending at once loses nothing: what is not committed is read again, what was begun outside is
    discarded by the next start.
    """

    @property
    def is_received(self) -> bool:
        """Whether a signal has asked for the end."""
        return self.received is not None

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self.received is None:
            self.received = signal.Signals(number)
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        os.write(2, b"\nstopped at once: what was not committed is read again by the next run\n")
        os._exit(128 + number)


def drive(
    connector: RunningConnector, signals: ShutdownSignals, progress: LiveProgress | PlainProgress
) -> None:
    """Wait for a connector's end, and show it; the first signal closes it. Raises what has ended it."""

    def note(received: signal.Signals) -> None:
        progress.note(
            f"{received.name}: closing, partial batches are flushed and committed "
            f"(a second signal stops at once)"
        )

    try:
        close_on_signal(connector, signals, note)
    except FencedException:
        progress.over(REPLACED)
        raise
    except BaseException:
        progress.over(FAILED)
        raise
    progress.over(STOPPED if signals.is_received else CAUGHT_UP)
