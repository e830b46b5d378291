"""Retries the start of a process while Kafka or the store is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import PASSING, Waits
from sinksdk.support.threads import start_call

T = TypeVar("T")

_POLL: Final = 0.1  # seconds between checks for a stop request


def retry_until_available(
    start: Callable[[], T],
    who: str,
    is_stopping: Callable[[], bool],
    *,
    report: Callable[[Waiting | None], None] = lambda _: None,
) -> T | None:
    """Call ``start`` until it raises no transient error; return None if a stop was requested."""
    waits = Waits(who, SystemWallClock())
    while not is_stopping():
        # A stop request abandons the thread: a client that waits for a broker does not notice the request.
        attempt = start_call(start, "startup")
        while not attempt.done() and not is_stopping():
            time.sleep(_POLL / 10)
        if not attempt.done():
            return None
        error = attempt.exception()
        if error is None:
            waits.over()
            return attempt.result()
        if not isinstance(error, PASSING):
            raise error
        delay, waiting = waits.failed(error)
        report(waiting)
        next_attempt = time.monotonic() + delay
        while not is_stopping() and time.monotonic() < next_attempt:
            time.sleep(_POLL)
    return None
