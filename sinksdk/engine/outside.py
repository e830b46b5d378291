"""Calling what is not the engine's: what a task's author wrote, and what may answer only later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.engine.known_positions import KnownPositions
from sinksdk.engine.measures import Measures
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.engine.threads import Signal
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.source.context import OffsetStorageReader
from sinksdk.source.records import SourceOffset, SourcePartition

log = logging.getLogger(__name__)

T = TypeVar("T")


class AuthorsCode:
    """Calls what a task's author wrote.

    Args:
        label: connector and task, for messages.
    """

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, method: Callable[..., T], *arguments: object) -> T:
        """Call a method.

        Raises:
            ConnectException: it raised something, which is the cause. ``sys.exit`` is an error as any other:
                it would end Spark's worker, and the task be run again.
        """
        try:
            return method(*arguments)
        except (Exception, SystemExit) as error:
            kind = type(error).__name__
            raise ConnectException(f"{self._label}: {method.__name__} raised {kind}: {error}") from error


class Persistence:
    """Tries again what may yet succeed, until its time is over or nobody waits any more.

    Args:
        label: connector and task, for messages.
        clock: tells how much time has passed.
        retry: delays and budget of each operation.
        given_up: nobody waits any more.
        measures: counts what fails, and what is tried again.
    """

    def __init__(
        self,
        label: str,
        clock: Clock,
        retry: RetryPolicy,
        given_up: Signal,
        measures: Measures | None = None,
    ) -> None:
        self._label = label
        self._clock = clock
        self._retry = retry
        self._given_up = given_up
        self._measures = measures or Measures(clock)

    def __call__(self, what: str, attempt: Callable[..., T], *arguments: object) -> T:
        """Do something.

        Raises:
            ConnectException: RetriableException once too often, which is the cause; or what it raised itself.
        """
        attempts: Attempts | None = None
        while True:
            try:
                return attempt(*arguments)
            except RetriableException as error:
                attempts = attempts or Attempts(self._retry)
                self._measures.failed()
                delay = attempts.failed(self._clock.now(), error.retry_after)
                if delay is None or self._given_up.wait(delay):
                    raise ConnectException(
                        f"{self._label}: {what} failed {attempts.failures} times, the last time with: {error}"
                    ) from error
                self._measures.retried()
                log.warning("%s: %s is tried again: %s", self._label, what, error)


class PersistentOffsets(OffsetStorageReader):
    """Reads source offsets, and asks again where there is no answer yet: authors would forget to.

    Args:
        offsets: where they are.
        persist: asks again.
        known: learns what was answered.
    """

    def __init__(self, offsets: OffsetStorageReader, persist: Persistence, known: KnownPositions) -> None:
        self._offsets = offsets
        self._persist = persist
        self._known = known

    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        """See :meth:`OffsetStorageReader.offsets`."""
        found = self._persist("reading source offsets", self._offsets.offsets, partitions)
        self._known.read(partitions, found)
        return found
