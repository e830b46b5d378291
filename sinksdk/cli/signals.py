"""Signals as the commands take them: the first one asks for the end, the second one is the end."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Final

from sinksdk.launch.signals import ClosingSignals

_SHOW_CURSOR: Final = b"\x1b[?25h"  # a live display had hidden it


class ShutdownSignals(ClosingSignals):
    """Remembers the first signal; the second one ends the process at once with 128 + its number.

    Ending at once loses nothing: what is not committed is read again, what was begun outside is
    discarded by the next start.
    """

    def _handle(self, number: int, _: FrameType | None) -> None:
        if self._received is None:
            self._received = signal.Signals(number)
            return
        if sys.stdout.isatty():
            os.write(sys.stdout.fileno(), _SHOW_CURSOR)
        os.write(2, b"\nstopped at once: what was not committed is read again by the next run\n")
        os._exit(128 + number)
