"""Waits at the start of a process for unavailable systems."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import PASSING, Waits
from sinksdk.support.threads import beside

T = TypeVar("T")

_LOOK: Final = 0.1  # seconds between checks whether an end was requested


def patiently(
    ask: Callable[[], T],
    who: str,
    is_stopping: Callable[[], bool],
    *,
    tell: Callable[[Waiting | None], None] = lambda _: None,
) -> T | None:
    """Call ``ask`` repeatedly while it raises passing errors.

    Args:
        ask: called in a separate thread, which is abandoned at the end: a client that waits for a broker does
            not notice the end.
        who: waits, for log lines.
        is_stopping: whether an end was requested, which ends the wait at once.
        tell: called with the wait, after each failed attempt.

    Returns:
        None if an end was requested.

    Raises:
        Exception: any other error of ``ask``.
    """
    waits = Waits(who, SystemWallClock())
    while not is_stopping():
        answer = beside(ask, "beginning")
        while not answer.done() and not is_stopping():
            time.sleep(_LOOK / 10)
        if not answer.done():
            return None
        error = answer.exception()
        if error is None:
            waits.over()
            return answer.result()
        if not isinstance(error, PASSING):
            raise error
        delay, waiting = waits.failed(error)
        tell(waiting)
        give_up = time.monotonic() + delay
        while not is_stopping() and time.monotonic() < give_up:
            time.sleep(_LOOK)
    return None
