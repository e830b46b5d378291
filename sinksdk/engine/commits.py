"""Interfaces of a sink task's worker to commits and dead letters, and the state its parts share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol, TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.engine.failures import Failures
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import EngineOptions, RangeTerms
from sinksdk.engine.partition import PartitionState
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, OffsetRange, SinkRecord, Token, TopicPartition
from sinksdk.task import SinkTask


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


T = TypeVar("T")


class GuardedCommitLog:
    """Remembers the first failed write: after it the record's content is unknown."""

    def __init__(self, commits: CommitLog) -> None:
        self._commits = commits
        self._failure: BaseException | None = None

    def raise_failure(self) -> None:
        """Raise what the first failed write raised, if one did."""
        if self._failure is not None:
            raise self._failure

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

    def _write(self, write: Callable[[], None]) -> None:
        self.raise_failure()
        try:
            write()
        except BaseException as error:
            self._failure = error
            raise

    # As in CommitLog; no write follows one that failed.

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """See :class:`CommitLog`."""
        return self._commits.committed(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        """See :class:`CommitLog`."""
        return self._commits.visible(partition)

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """See :class:`CommitLog`."""
        return self._commits.prepared(partition)

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """See :class:`CommitLog`."""
        return self._commits.stale(partition)

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.prepare(tokens))

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.commit(offsets))

    def published(self, partition: TopicPartition) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.published(partition))

    def withdraw(
        self, partition: TopicPartition, offset: OffsetAndMetadata, discard: Sequence[Token]
    ) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.withdraw(partition, offset, discard))

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """See :class:`CommitLog`."""
        return self._commits.is_withdrawn(partition)

    def discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """See :class:`CommitLog`."""
        self._write(lambda: self._commits.discarded(partition, tokens))

    def flush(self) -> None:
        """See :class:`CommitLog`."""
        self._write(self._commits.flush)


@dataclass(frozen=True, slots=True)
class TaskScope:
    """State that all parts of one sink task's worker share; ``label`` names it in messages."""

    task: SinkTask
    label: str
    commits: GuardedCommitLog
    clock: Clock
    options: EngineOptions
    states: dict[TopicPartition, PartitionState]
    measures: Measures
    failures: Failures

    @classmethod
    def of(
        cls, task: SinkTask, label: str, commits: CommitLog, clock: Clock, options: EngineOptions
    ) -> TaskScope:
        """The state of a new worker."""
        states: dict[TopicPartition, PartitionState] = {}
        measures = Measures(clock)
        failures = Failures(states, clock, policy=options.retry, measures=measures, label=label)
        return cls(task, label, GuardedCommitLog(commits), clock, options, states, measures, failures)

    def begin(
        self, partition: TopicPartition, offsets: OffsetRange | None, terms: RangeTerms
    ) -> PartitionState:
        """Begin a range, at the commit if an earlier attempt has committed some of it."""
        committed = self.commits.committed(partition)
        begin = offsets.start if offsets else 0
        # The commit may also be behind: the source may have lost records.
        start = max(committed.offset if committed else 0, begin)
        state = PartitionState(
            partition,
            start,
            offsets.end if offsets else None,
            position=start,
            begin=begin,
            limit=terms.records,
            retry=terms.retry,
        )
        self.states[partition] = state
        return state

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are open."""
        return frozenset(p for p, state in self.states.items() if state.is_open)

    def floor(self, partition: TopicPartition) -> int:
        """The offset up to which a partition is committed, or its range began."""
        committed, start = self.commits.committed(partition), self.states[partition].start
        return max(committed.offset, start) if committed else start
