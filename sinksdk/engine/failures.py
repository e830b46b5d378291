"""Failures that end partitions before their ranges end, and retries left to a later generation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from typing import NamedTuple

from sinksdk.engine.clock import Clock
from sinksdk.engine.measures import Measures
from sinksdk.engine.outcome import Failure
from sinksdk.engine.partition import InDoubt, OrderViolation, PartitionState
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import TopicPartition
from sinksdk.support.retry import Retry

log = logging.getLogger(__name__)


class Ending(NamedTuple):
    """Why this generation makes no retry; ``retry`` is what it leaves to a later one."""

    error: BaseException
    retry: Retry | None = None


class Failures:
    """Records the failures of one task's partitions; the caller then ends the partition.

    A partition fails once, with the first of these:

    1. an error raised by the task or on its behalf (:meth:`note`) 2. an error passed to ``context.fail``
    (:meth:`request`) 3. the first of its records that was refused (:meth:`reported`) 4. a requested position
    that is not possible (:meth:`misplace`)

    The last three happen during a call of the author's code, and take effect when it has returned
    (:meth:`note_requested`).
    """

    def __init__(
        self,
        states: Mapping[TopicPartition, PartitionState],
        clock: Clock,
        *,
        policy: RetryPolicy,
        measures: Measures,
        label: str,
    ) -> None:
        self._states = states
        self._clock = clock
        self._policy = policy
        self._measures = measures
        self._label = label
        self._letters: dict[TopicPartition, deque[Future[None]]] = {}
        self._named: dict[TopicPartition, BaseException] = {}
        self._refused: dict[TopicPartition, BaseException] = {}
        self._misplaced: dict[TopicPartition, BaseException] = {}

    # -- during a call of the author's -----------------------------------------------------------

    def request(self, partition: TopicPartition, error: BaseException) -> None:
        """The task requests the end of a partition."""
        self._named.setdefault(partition, error)

    def is_requested(self, partition: TopicPartition) -> bool:
        """Whether the task has requested its end, during the call that just returned."""
        return partition in self._named

    def misplace(self, partition: TopicPartition, offset: int) -> None:
        """The task requests a position outside ``open``."""
        self._misplaced[partition] = ConnectException(
            f"{self._label}: the task asked for {partition} at offset {offset} while at "
            f"{self._states[partition].position}; the next generation starts it at its commit"
        )

    def reported(
        self, partition: TopicPartition, letter: Future[None], refusal: ConnectException | None
    ) -> None:
        """A record was reported; ``refusal`` is set where bad records are not tolerated."""
        state = self._states.get(partition)
        if state is None or not state.is_open:
            return
        letters = self._letters.setdefault(partition, deque())
        while letters and _is_written(letters[0]):
            letters.popleft()
        letters.append(letter)
        if refusal is not None:
            self._refused.setdefault(partition, refusal)

    def is_refused(self, partition: TopicPartition) -> bool:
        """Whether a record of the partition was refused: no commit may cover it."""
        return partition in self._refused

    def take_refusal(self, partition: TopicPartition) -> BaseException | None:
        """The refusal of a partition's record, once."""
        return self._refused.pop(partition, None)

    def await_letters(self, partition: TopicPartition) -> None:
        """Return when a partition's dead letters are durable. Raises what the first lost one raised."""
        for letter in self._letters.pop(partition, ()):
            letter.result()

    def note_requested(self, began: float | None = None) -> None:
        """Record the failures of the author's call that just returned; ``began`` is its start."""
        for errors in (self._named, self._refused, self._misplaced):
            for partition, error in errors.items():
                self.note(partition, error, began=began)
            errors.clear()

    def forget(self, partition: TopicPartition) -> None:
        """The partition has ended: its failures do not count for a later opening."""
        self._letters.pop(partition, None)
        for errors in (self._named, self._refused, self._misplaced):
            errors.pop(partition, None)

    # -- at once ---------------------------------------------------------------------------------

    def note(
        self,
        partition: TopicPartition,
        error: BaseException,
        *,
        at_once: bool = False,
        began: float | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Record a partition's failure. The first one counts.

        Args:
            at_once: the next generation opens it without a back-off.
            began: start of the failed operation; by default now.
            retry: what to leave to a later generation, if known.
        """
        state = self._states[partition]
        if state.failure is not None:
            return
        if retry is None and not at_once and isinstance(error, RetriableException):
            retry = self._retry_of(state, error, began)
        is_final = isinstance(error, OrderViolation)
        state.failure = Failure.of(error, at_once=at_once, is_final=is_final, retry=retry)
        if retry is None:
            self._measures.given_up()
            log.error(
                "%s: %s ends at offset %d: %s", self._label, partition, state.position, error, exc_info=error
            )
        else:
            self._measures.retried()
            log.info(  # the driver warns of it
                "%s: %s ends at offset %d, and is tried again by a later generation in %.1f s: %s",
                self._label,
                partition,
                state.position,
                retry.next_attempt - self._clock.now(),
                error,
            )

    def _retry_of(
        self, state: PartitionState, error: RetriableException, began: float | None
    ) -> Retry | None:
        """The retry that this generation leaves to a later one."""
        policy, now = self._policy, self._clock.now()
        if policy.patience is None:
            return None
        attempts = Attempts(policy, now if began is None else began, state.retry)
        delay = attempts.failed(now, error.retry_after)
        return None if delay is None else attempts.left(now, delay)

    @staticmethod
    def casts_doubt(error: BaseException) -> bool:
        """Whether nothing may be committed of what the task accepted before this."""
        return isinstance(error, InDoubt)


def _is_written(letter: Future[None]) -> bool:
    return letter.done() and not letter.cancelled() and letter.exception() is None
