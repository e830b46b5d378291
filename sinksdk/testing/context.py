"""A context for unit tests of a task without the engine."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future

from sinksdk.context import ClosingReason, ErrantRecordReporter, SinkTaskContext
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetAndMetadata, SinkRecord, Token, TopicPartition, as_token


class FakeContext(SinkTaskContext):
    """Answers what it is told to answer, and keeps what the task asked for.

    ::

        task.initialize(context := FakeContext([tp]))
        context.closing = ClosingReason.REBALANCE
        task.pre_commit({tp: OffsetAndMetadata(3)})

    Args:
        tolerates_errors: whether errant records are tolerated (``errors.tolerance``).
    """

    def __init__(
        self,
        assignment: Collection[TopicPartition] = (),
        *,
        committed: Mapping[TopicPartition, OffsetAndMetadata] | None = None,
        configs: Mapping[str, str] | None = None,
        generation: int = 1,
        tolerates_errors: bool = True,
    ) -> None:
        self.open = set(assignment)
        """What :meth:`assignment` says."""
        self.commits = dict(committed or {})
        """What :meth:`committed` says."""
        self.closing: ClosingReason | None = None
        """Set it, and ``is_closing()`` is true."""
        self.seconds_left: float | None = None
        """What :meth:`deadline` says while closing."""
        self.tokens: dict[TopicPartition, list[Token]] = defaultdict(list)
        """Tokens the task noted."""
        self.moves: dict[TopicPartition, int] = {}
        """Positions the task asked for."""
        self.timeouts: list[float] = []
        """Waits the task asked for."""
        self.requested_commits = 0
        """How often the task asked for a commit."""
        self.failures: dict[TopicPartition, BaseException] = {}
        """Partitions the task gave up."""
        self.counts: dict[TopicPartition, Counter[str]] = defaultdict(Counter)
        """What the task counted."""
        self.reported: list[tuple[SinkRecord, BaseException]] = []
        """Errant records the task reported."""
        self._configs = dict(configs or {})
        self._generation = generation
        self._reporter = _Reporter(self.reported, tolerates_errors)

    def is_closing(self) -> bool:
        return self.closing is not None

    def closing_reason(self) -> ClosingReason | None:
        return self.closing

    def deadline(self) -> float | None:
        return self.seconds_left if self.is_closing() else None

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.open)

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        return self.commits.get(partition)

    def configs(self) -> Mapping[str, str]:
        return self._configs

    def generation(self) -> int:
        return self._generation

    def prepared(self, tokens: Mapping[TopicPartition, Sequence[Token | str]]) -> None:
        """Raises ConnectException for a partition that is not open."""
        strangers = sorted(set(tokens) - self.open)
        if strangers:
            raise ConnectException(f"tokens were noted for {', '.join(map(str, strangers))}: not open here")
        for partition, given in tokens.items():
            self.tokens[partition] += map(as_token, given)

    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.moves.update(offsets)

    def timeout(self, seconds: float) -> None:
        self.timeouts.append(seconds)

    def request_commit(self) -> None:
        self.requested_commits += 1

    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        self.failures.setdefault(partition, error)

    def count(self, partition: TopicPartition, **amounts: int) -> None:
        self.counts[partition].update(amounts)

    def errant_record_reporter(self) -> ErrantRecordReporter:
        return self._reporter


class _Reporter(ErrantRecordReporter):
    """Keeps what is reported, and refuses it where bad records are not tolerated."""

    def __init__(self, reported: list[tuple[SinkRecord, BaseException]], tolerates: bool) -> None:  # noqa: FBT001 - private
        self._reported = reported
        self._tolerates = tolerates

    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        self._reported.append((record, error))
        if not self._tolerates:
            raise ConnectException(
                f"{record.topic_partition} at offset {record.offset}: bad records are not tolerated"
            ) from error
        done: Future[None] = Future()
        done.set_result(None)
        return done
