"""Waiting for what a process needs before it can begin, and is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Final, TypeVar

from sinksdk.cli.output import warn
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.runtime.backoff import PASSING, Waits
from sinksdk.store.reports import Waiting

T = TypeVar("T")

_LOOK: Final = 0.1  # seconds between looks whether a signal came


def patiently(
    ask: Callable[[], T],
    waits: Waits,
    signals: ShutdownSignals,
    *,
    tell: Callable[[Waiting | None], None] = lambda _: None,
) -> T | None:
    """What a question is answered with, asked again for as long as it fails with what passes by itself.

    Args:
        ask: the question. It is asked in a thread of its own, which a signal leaves behind: a client that
            waits for a broker hears of none.
        waits: says how long is waited, and tells of it.
        signals: end the waiting at once.
        tell: takes what is waited for, each time anew.

    Returns:
        None after a signal.

    Raises:
        Exception: what does not pass.
    """
    while signals.received is None:
        answer = _beside(ask)
        while not answer.done() and signals.received is None:
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
        while signals.received is None and time.monotonic() < give_up:
            time.sleep(_LOOK)
    return None


def _beside(ask: Callable[[], T]) -> Future[T]:
    answer: Future[T] = Future()

    def run() -> None:
        try:
            answer.set_result(ask())
        except BaseException as error:  # noqa: BLE001 - raised where the answer is waited for
            answer.set_exception(error)

    threading.Thread(target=run, name="beginning", daemon=True).start()
    return answer


class WarnedOnce:
    """Warns of each thing once, however often it is said."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, texts: Sequence[str]) -> None:
        """Warn of what is new."""
        warn([text for text in texts if text not in self._said])
        self._said.update(texts)
