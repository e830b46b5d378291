"""A Python worker ends when the process does that has forked it.

Spark ends its Python workers through their daemon. If that was killed, nobody ends them: neither when their
job is cancelled, nor when Spark itself ends. A sink's task finds the end of its input. A source's task has
none, and would read and write on for as long as nobody fences it.
"""

from __future__ import annotations

import functools
import logging
import os
import threading
import time
from typing import Final

log = logging.getLogger(__name__)

_LOOK: Final = 1.0  # seconds


@functools.cache
def end_with_parent() -> None:
    """From now on this process ends within a second after its parent, as a crash would end it.

    A Spark that still runs takes it for one, and runs the task again. To call it twice changes nothing.
    """
    parent = os.getppid()
    threading.Thread(target=_watch, args=(parent,), name="parent-watch", daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK)
    log.warning(
        "process %d has ended, which started this one, and would have ended it: so does this one", parent
    )
    os._exit(1)
