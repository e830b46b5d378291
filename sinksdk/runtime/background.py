"""Running something that may block, or hang for ever, beside the thread that must go on."""

from __future__ import annotations

import threading
from collections.abc import Callable

from sinksdk.logs import same_subject

Background = Callable[[Callable[[], None]], None]
"""Runs something beside the driver's thread; handed in, so that a simulation has no threads."""


def in_a_thread(run: Callable[[], None]) -> None:
    """Run in a thread of its own: one that hangs keeps nobody from ending, as a pool's would."""
    threading.Thread(
        target=same_subject(run), name=getattr(run, "__qualname__", "background"), daemon=True
    ).start()
