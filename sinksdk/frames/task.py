"""A connector's task: over one Spark partition of a micro-batch, or over what is left to publish."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from sinksdk.connector import SinkConnector
from sinksdk.engine import CommitLog, EngineOptions, TaskName, WallClock, WorkerSinkTask
from sinksdk.engine.commits import DeadLetters
from sinksdk.engine.task_run import SinkTaskRun
from sinksdk.errors import ConnectException
from sinksdk.frames.protocol import Share
from sinksdk.frames.rows import as_records
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.store import TakenOver
from sinksdk.store.records import by_partition
from sinksdk.worker.outside import schema_registry

if TYPE_CHECKING:
    import pyarrow as pa


class HeldCommits(CommitLog):
    """A task's commit log whose commits wait for those of all tasks of the micro-batch.

    What is committed here is neither written nor published: :meth:`held_commit` has it for the driver.

    Another attempt at this task may have ended before, and Spark may take its result: what it has prepared is
    not discarded here, but by the driver once it knows.
    """

    def __init__(self, taken: TakenOver) -> None:
        self._ledger = taken.ledger
        self._frames = taken.plan.frames
        self._planned = {p: frozenset(tokens) for p, tokens in by_partition(taken.plan.stale).items()}
        self._commits: dict[TopicPartition, OffsetAndMetadata] = {}
        self._held: dict[TopicPartition, dict[str, Token]] = {}

    def held_commit(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """What the task has committed of a partition, with all tokens to publish."""
        commit = self._commits.get(partition)
        if commit is None:
            return None
        tokens = tuple(self._held.get(partition, {}).values())
        return OffsetAndMetadata(commit.offset, commit.metadata, tokens)

    @property
    def held(self) -> Mapping[TopicPartition, Collection[Token]]:
        """See :class:`CommitLog`."""
        return {partition: tokens.values() for partition, tokens in self._held.items()}

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The held commit, whose tokens are not to be published yet; else that of the micro-batch before."""
        return self._commits.get(partition) or self._ledger.committed(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        """See :class:`CommitLog`."""
        return self._ledger.visible(partition)

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens of this attempt that no held commit covers."""
        held = self._held.get(partition, {})
        return tuple(token for token in self._ledger.prepared(partition) if token.id not in held)

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        """Tokens of earlier generations that no commit covers; none of another attempt at this task."""
        planned = self._planned.get(partition, frozenset())
        return tuple(token for token in self._ledger.stale(partition) if token.id in planned)

    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> Mapping[TopicPartition, str]:
        """See :class:`CommitLog`. What a held commit covers is committed."""
        held = {p: [t.id for t in given if t.id in self._held.get(p, {})] for p, given in tokens.items()}
        again = {p: f"token {ids[0]} is committed already" for p, ids in held.items() if ids}
        return {**self._ledger.unusable(tokens), **again}

    def due(self, partition: TopicPartition) -> int | None:
        """See :class:`CommitLog`."""
        return self._ledger.due(partition)

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        """See :class:`CommitLog`."""
        self._ledger.prepare(tokens)

    def records(self, partition: TopicPartition) -> int:
        """None: a micro-batch is committed as a whole, or not at all."""
        return self._ledger.records(partition)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        records: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 - the driver counts its shares
        due: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 - a DataFrame's offsets have no gaps
    ) -> None:
        """Hold these commits. Writes nothing."""
        for partition, offset in offsets.items():
            self._held.setdefault(partition, {}).update({token.id: token for token in offset.tokens})
            self._commits[partition] = OffsetAndMetadata(offset.offset, offset.metadata)

    def mark_published(self, partition: TopicPartition) -> None:
        """What an earlier micro-batch has committed is published."""
        self._ledger.mark_published(partition)

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,  # noqa: ARG002 - nothing of it is ever written again
    ) -> None:
        """Refused: a DataFrame's rows do not come again.

        Raises:
            ConnectException: always.
        """
        committed = self._ledger.committed(partition)
        # Nothing is committed after it before its tokens are published.
        written = self._frames.written[-1] if self._frames and self._frames.written else "a micro-batch"
        lost = f", where {', '.join(token.id for token in discard)} can never be published" if discard else ""
        at = committed.offset if committed else 0
        raise ConnectException(
            f"{partition}: of {written}, the task goes back from offset {at} to {offset.offset}{lost}; a "
            f"DataFrame's rows cannot be read again, so nothing goes on here. Write them once more, with "
            f"another 'name' and 'topic'; 'sinksdk delete --force' gives this one up"
        )

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        """Never in this generation: see :meth:`withdraw`."""
        return self._ledger.is_withdrawn(partition)

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """See :class:`CommitLog`."""
        self._ledger.mark_discarded(partition, tokens)

    def flush(self) -> None:
        """See :class:`CommitLog`."""
        self._ledger.flush()


class FrameTask:
    """Runs a connector's task, on an executor or in the driver's process.

    Args:
        connector: its class.
        taken: the task's record, taken over.
    """

    def __init__(
        self,
        connector: type[SinkConnector],
        name: TaskName,
        taken: TakenOver,
        *,
        clock: WallClock,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        number = name.task
        made, plan = connector(), taken.plan
        raw = {**plan.config, **plan.tasks[number].config}
        config = made.config_class.parse(raw)
        self._label = str(name)
        self._plan = plan
        self._number = number
        self._clock = clock
        self._commits = HeldCommits(taken)
        self._ledger = taken.ledger
        self._worker = WorkerSinkTask(
            made.task_class(),
            name,
            config,
            commits=self._commits,
            clock=clock,
            generation=plan.generation,
            raw_config=raw,
            options=EngineOptions.of(config, schema_registry),
            dead_letters=dead_letters,
        )

    def write(self, batches: Iterable[pa.RecordBatch]) -> Share:
        """Give the task all rows of its partition, and close it.

        A sink that keeps offsets of its own may be ahead of the commit (``context.offset``). Rows that this
        very micro-batch has written there before are skipped. Otherwise they may be those of a write that was
        never committed: then nothing is skipped, and offsets go on from where the sink is.

        Raises:
            FencedException: another attempt at the task, or another query, has taken over.
            ConnectException: the task has failed, or has kept rows back.
        """
        partition, start = self.partition, self._start
        plan = RangePlan.open_ended(partition, due=True)
        (outcome,) = self._run([plan], self._numbered(batches))
        if outcome.failure is not None:
            raise ConnectException(f"{self._label}: {outcome.failure.message}")
        commit = self._commits.held_commit(partition) or OffsetAndMetadata(start)
        if commit.offset < outcome.position:
            raise ConnectException(
                f"{self._label}: pre_commit returned offset {commit.offset} of {partition} while closing, "
                f"and {outcome.position} was delivered: a DataFrame's rows do not come again, so all must "
                f"be written while is_closing() is true"
            )
        return Share(self._plan.generation, partition, start, commit, outcome.records)

    def settle(self) -> Sequence[PartitionOutcome]:
        """Publish what is committed and discard what is not, of all partitions of the task's plan."""
        return self._run(self._plan.tasks[self._number].ranges, ())

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[SinkRecords]:
        """Asked for its first batch when the partition is open, or could not be opened."""
        if self.partition not in self._worker.assignment():
            return  # where the sink is, is not known
        begun = self._ledger.begun
        start = begun.base if begun else self._start
        if start is None:
            start = self._worker.position(self.partition)
            self._ledger.begin_at(start)
        yield from as_records(batches, self.partition, start)

    @property
    def partition(self) -> TopicPartition:
        """The topic's partition that the task writes."""
        return self._plan.tasks[self._number].ranges[0].topic_partition

    @property
    def _start(self) -> int:
        committed = self._commits.committed(self.partition)
        return committed.offset if committed else 0

    def _run(self, plans: Sequence[RangePlan], batches: Iterable[SinkRecords]) -> Sequence[PartitionOutcome]:
        run = SinkTaskRun(self._worker, plans, batches, closing=lambda: None, clock=self._clock)
        return run.run()
