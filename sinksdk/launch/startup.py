"""Retries the start of a process while Kafka or the store is unavailable."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import PASSING, Waits
from sinksdk.support.threads import beside

T = TypeVar("T")

_POLL: Final = 0.1  # seconds between checks for a stop request


def retry_until_available(
    start: Callable[[], T],
    who: str,
    is_stopping: Callable[[], bool],
    *,
    report: Callable[[Waiting | None], None] = lambda _: None,
) -> T | None:
    """Call ``start`` until it raises no transient error.

    Args:
        start: called in a thread, which is abandoned on a stop request: a client that waits for a broker does
            not notice the request.
        who: names the caller in log lines.
        is_stopping: whether a stop was requested.
        report: called with the state of the wait, after each failed attempt.

    Returns:
        The result; None if a stop was requested.

    Raises:
        Exception: an error of ``start`` that is not transient.
    """
    waits = Waits(who, SystemWallClock())
    while not is_stopping():
        attempt = beside(start, "startup")
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
