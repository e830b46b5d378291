"""Interfaces of a sink task's worker to commits and dead letters, the state its parts share, and failures."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple, Protocol, TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import EngineOptions, RangeTerms
from sinksdk.engine.outcome import Failure
from sinksdk.engine.partition import InDoubt, OrderViolation, PartitionState
from sinksdk.engine.retry import Attempts
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import OffsetAndMetadata, OffsetRange, SinkRecord, Token, TopicPartition
from sinksdk.support.retry import Retry
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)

T = TypeVar("T")


class CommitLog(Protocol):
    """The durable state of one attempt at one task. Every write is fenced.

    All writes raise :class:`~sinksdk.FencedException` once a newer generation or attempt owns the record.
    When a write returns, its effect is durable; after any other error the caller must stop using this log.
    """

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit; ``publish`` holds its tokens that are not published yet."""
        ...

    def visible(self, partition: TopicPartition) -> int | None:
        """The offset up to which everything is published: that of the last commit, or of the one before it.

        None where nothing is, or that is not known.
        """
        ...

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that this attempt has prepared and that no commit covers."""
        ...

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens that predecessors prepared, that no commit covered, and that are not discarded yet."""
        ...

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """Record tokens as prepared, in one write."""
        ...

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Commit offsets with the tokens to publish, in one atomic write."""
        ...

    def published(self, partition: TopicPartition) -> None:
        """All tokens of the last commit are published. May become durable with the next write."""
        ...

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """Move the last commit back to this offset; these of its tokens must be discarded.

        The only way to move a commit back. It keeps no token to publish.
        """
        ...

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Whether the last commit was withdrawn in this generation, by this attempt or an earlier one."""
        ...

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """These tokens are discarded. May become durable with the next write."""
        ...

    def flush(self) -> None:
        """Write now what would wait for the next write."""
        ...


class DeadLetters(Protocol):
    """Writes undeliverable records."""

    def send(self, record: SinkRecord) -> Future[None]:
        """Begin writing a record; the future is done once it is durable."""
        ...


TopicIdCheck = Callable[[Collection[str]], Mapping[str, ConnectException]]
"""Checks topic ids after the delivery of records and before their commit.

Returns the topics that may not be the planned ones, each with an error: a RetriableException if that is
unknown now, any other if the topic is certainly another one.
"""


def always_valid(topics: Collection[str]) -> Mapping[str, ConnectException]:  # noqa: ARG001 - asked as every TopicIdCheck is
    """For sources whose topics cannot be replaced."""
    return {}


class Ending(NamedTuple):
    """Why this generation makes no retry; ``retry`` is what it leaves to a later one."""

    error: BaseException
    retry: Retry | None = None


class TaskScope:
    """State that all parts of one sink task's worker share; ``label`` names it in messages.

    A partition fails once, with the first of these; the caller then ends it:

    1. an error raised by the task or on its behalf (:meth:`note`)
    2. an error passed to ``context.fail``
    3. the first of its records that was refused (:meth:`reported`)
    4. a requested position that is not possible (:meth:`misplace`)

    The last three happen during a call of the author's code, and take effect when it has returned
    (:meth:`note_requested`).
    """

    def __init__(
        self, task: SinkTask, label: str, commits: CommitLog, clock: Clock, options: EngineOptions
    ) -> None:
        self.task = task
        self.label = label
        self.commits = commits
        self.clock = clock
        self.options = options
        self.states: dict[TopicPartition, PartitionState] = {}
        self.measures = Measures(clock)
        self._write_failure: BaseException | None = None

    def begin(self, partition: TopicPartition, offsets: OffsetRange | None, terms: RangeTerms) -> None:
        """Begin a range, at the commit if an earlier attempt has committed some of it."""
        committed = self.commits.committed(partition)
        begin = offsets.start if offsets else 0
        # The commit may also be behind: the source may have lost records.
        start = max(committed.offset if committed else 0, begin)
        self.states[partition] = PartitionState(
            partition,
            start,
            offsets.end if offsets else None,
            position=start,
            begin=begin,
            limit=terms.records,
            retry=terms.retry,
        )

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are open."""
        return frozenset(p for p, state in self.states.items() if state.is_open)

    def floor(self, partition: TopicPartition) -> int:
        """The offset up to which a partition is committed, or its range began."""
        committed, start = self.commits.committed(partition), self.states[partition].start
        return max(committed.offset, start) if committed else start

    # -- calls of the author's code --------------------------------------------------------------

    def call(self, method: Callable[..., T], *arguments: object) -> T:
        """Run the author's code. A write that failed inside it takes precedence over its result.

        When it raises, the caller first calls :meth:`raise_failure`. A ``sys.exit`` counts as an error: it
        would end Spark's Python worker, and Spark would run the task again.
        """
        try:
            result = method(*arguments)
        except SystemExit as error:
            message = f"{getattr(method, '__name__', 'the task')} raised SystemExit: {error.code}"
            raise ConnectException(message) from error
        self.raise_failure()
        return result

    def write(self, method: Callable[..., None], *arguments: object) -> None:
        """Call a method of the commit log that writes. No write follows one that failed."""
        self.raise_failure()
        try:
            method(*arguments)
        except BaseException as error:
            self._write_failure = error
            raise

    def raise_failure(self) -> None:
        """Raise what the first failed write raised, if one did: the record's content is unknown since."""
        if self._write_failure is not None:
            raise self._write_failure

    def misplace(self, partition: TopicPartition, offset: int) -> None:
        """The task requests a position outside ``open``."""
        state = self.states[partition]
        state.misplaced = ConnectException(
            f"{self.label}: the task asked for {partition} at offset {offset} while at "
            f"{state.position}; the next generation starts it at its commit"
        )

    def reported(
        self, partition: TopicPartition, letter: Future[None], refusal: ConnectException | None
    ) -> None:
        """A record was reported; ``refusal`` is set where bad records are not tolerated."""
        state = self.states.get(partition)
        if state is None or not state.is_open:
            return
        while state.letters and _is_written(state.letters[0]):
            state.letters.popleft()
        state.letters.append(letter)
        if state.refusal is None:
            state.refusal = refusal

    # -- failures --------------------------------------------------------------------------------

    def note_requested(self, began: float | None = None) -> None:
        """Record the failures of the author's call that just returned; ``began`` is its start."""
        for partition, state in self.states.items():
            if not state.is_open:
                continue
            if state.requested is None and state.refusal is None and state.misplaced is None:
                continue
            for error in (state.requested, state.refusal, state.misplaced):
                if error is not None:
                    self.note(partition, error, began=began)
            state.requested = state.refusal = state.misplaced = None

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
        state = self.states[partition]
        if state.failure is not None:
            return
        if retry is None and not at_once and isinstance(error, RetriableException):
            retry = self._retry_of(state, error, began)
        is_final = isinstance(error, OrderViolation)
        state.failure = Failure.of(error, at_once=at_once, is_final=is_final, retry=retry)
        if retry is None:
            self.measures.given_up()
            log.error(
                "%s: %s ends at offset %d: %s", self.label, partition, state.position, error, exc_info=error
            )
        else:
            self.measures.retried()
            log.info(  # the driver warns of it
                "%s: %s ends at offset %d, and is tried again by a later generation in %.1f s: %s",
                self.label,
                partition,
                state.position,
                retry.next_attempt - self.clock.now(),
                error,
            )

    @staticmethod
    def casts_doubt(error: BaseException) -> bool:
        """Whether nothing may be committed of what the task accepted before this."""
        return isinstance(error, InDoubt)

    def _retry_of(
        self, state: PartitionState, error: RetriableException, began: float | None
    ) -> Retry | None:
        """The retry that this generation leaves to a later one."""
        policy, now = self.options.retry, self.clock.now()
        if policy.patience is None:
            return None
        attempts = Attempts(policy, now if began is None else began, state.retry)
        delay = attempts.failed(now, error.retry_after)
        return None if delay is None else attempts.left(now, delay)


def _is_written(letter: Future[None]) -> bool:
    return letter.done() and not letter.cancelled() and letter.exception() is None
