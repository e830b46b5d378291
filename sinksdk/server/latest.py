"""Answers in time, whatever the store does: it is asked in the background, by one question at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PATIENCE: Final = (
    1.5  # seconds: whoever probes or scrapes waits for some, and a probe by default for one or two
)


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """What a question was answered with.

    Args:
        value: the answer.
        error: how the question failed instead.
        at: when that was, on the monotonic clock.
    """

    value: T | None
    error: Exception | None
    at: float


class Latest(Generic[T]):
    """A question that may take long, and its latest answer. One of its callers asks, the others wait too.

    Args:
        ask: the question.
        patience: seconds that a caller waits at most.
    """

    def __init__(self, ask: Callable[[], T], *, patience: float = PATIENCE) -> None:
        self._ask = ask
        self._patience = patience
        self._lock = threading.Lock()
        self._asked: Future[Answer[T]] | None = None
        self.asked_at = time.monotonic()
        """When the question was asked that is not answered yet, or the last one."""
        self.last: Answer[T] | None = None
        """The latest answer there was."""

    async def get(self) -> Answer[T] | None:
        """An answer to a question that nobody had an answer to before; None: there is none in time."""
        with self._lock:
            asked = self._asked or self._begin()
        # Shielded: that one caller waits no longer takes the answer from nobody.
        waiting = asyncio.shield(asyncio.wrap_future(asked))
        try:
            return await asyncio.wait_for(waiting, self._patience)
        except TimeoutError:
            return None

    def _begin(self) -> Future[Answer[T]]:
        asked = self._asked = Future[Answer[T]]()
        self.asked_at = time.monotonic()
        # A daemon, and none of a pool's: the process ends without it.
        threading.Thread(target=self._run, args=(asked,), name="latest", daemon=True).start()
        return asked

    def _run(self, asked: Future[Answer[T]]) -> None:
        try:
            answer = Answer(self._ask(), None, time.monotonic())
        except Exception as error:  # noqa: BLE001 - whoever takes the answer deals with it
            answer = Answer(None, error, time.monotonic())
        with self._lock:
            self._asked, self.last = None, answer
        asked.set_result(answer)
