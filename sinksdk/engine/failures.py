"""Why partitions end before their ranges do, and what is left of it to a later generation."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future

from sinksdk.engine.clock import Clock
from sinksdk.engine.measures import Measures
from sinksdk.engine.outcome import Failure
from sinksdk.engine.partition import OrderViolation, PartitionState
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import TopicPartition
from sinksdk.support.retry import Retry


class Reports:
    """Errant records reported since each partition's last commit."""

    def __init__(self) -> None:
        self._letters: dict[TopicPartition, deque[Future[None]]] = {}
        self._refusals: dict[TopicPartition, ConnectException] = {}

    def add(self, partition: TopicPartition, letter: Future[None], refusal: ConnectException | None) -> None:
        """A record was reported; ``refusal`` is set where bad records are not tolerated."""
        letters = self._letters.setdefault(partition, deque())
        while letters and _is_written(letters[0]):
            letters.popleft()
        letters.append(letter)
        if refusal is not None:
            self._refusals.setdefault(partition, refusal)

    def wait(self, partition: TopicPartition) -> None:
        """Wait until a partition's dead letters are durable. Raises what the first lost one raised."""
        for letter in self._letters.pop(partition, ()):
            letter.result()

    def refused(self, partition: TopicPartition) -> bool:
        """Whether a record of the partition was refused."""
        return partition in self._refusals

    def take_refusal(self, partition: TopicPartition) -> ConnectException | None:
        """The refusal of a partition's record, once."""
        return self._refusals.pop(partition, None)

    def take_refusals(self) -> dict[TopicPartition, ConnectException]:
        """All of them, once."""
        refusals, self._refusals = self._refusals, {}
        return refusals

    def forget(self, partition: TopicPartition) -> None:
        """The partition is not ours any more; its successor reports again."""
        self._letters.pop(partition, None)
        self._refusals.pop(partition, None)


def _is_written(letter: Future[None]) -> bool:
    return letter.done() and not letter.cancelled() and letter.exception() is None


log = logging.getLogger(__name__)


class Failures:
    """Notes the failures of one task's partitions; whoever notes one sees to it that the partition ends.

    Args:
        states: what is known of each partition.
        clock: time.
        policy: whether what may pass is left to a later generation, and for how long.
        measures: counts them.
        label: connector, task and generation, for messages.
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

    def note(
        self,
        partition: TopicPartition,
        error: BaseException,
        *,
        at_once: bool = False,
        began: float | None = None,
        retry: Retry | None = None,
    ) -> None:
        """Note why a partition cannot go on. Its first failure counts.

        Args:
            partition: which.
            error: why.
            at_once: the next generation opens it without a back-off.
            began: when what failed was begun; by default now.
            retry: what is left to a later generation, if that is known.
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
        """What is left to a later generation of something that is not tried again in this one."""
        policy, now = self._policy, self._clock.now()
        if policy.patience is None:
            return None
        attempts = Attempts(policy, now if began is None else began, state.retry)
        delay = attempts.failed(now, error.retry_after)
        return None if delay is None else attempts.left(now, delay)
