"""Runs a connector's task for a Spark partition of a micro-batch, or to publish commits."""

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
    """A commit log that keeps commits in memory until the driver commits the whole micro-batch."""

    def __init__(self, taken: TakenOver) -> None:
        self._ledger = taken.ledger
        self._frames = taken.plan.frames
        self._planned = {p: frozenset(tokens) for p, tokens in by_partition(taken.plan.stale).items()}
        self._commits: dict[TopicPartition, OffsetAndMetadata] = {}
        self._held: dict[TopicPartition, dict[str, Token]] = {}

    def held_commit(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        commit = self._commits.get(partition)
        if commit is None:
            return None
        tokens = tuple(self._held.get(partition, {}).values())
        return OffsetAndMetadata(commit.offset, commit.metadata, tokens)

    @property
    def held(self) -> Mapping[TopicPartition, Collection[Token]]:
        return {partition: tokens.values() for partition, tokens in self._held.items()}

    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        # Held commits have no tokens here, because these must not be published yet.
        return self._commits.get(partition) or self._ledger.committed(partition)

    def visible(self, partition: TopicPartition) -> int | None:
        return self._ledger.visible(partition)

    def prepared(self, partition: TopicPartition) -> Sequence[Token]:
        held = self._held.get(partition, {})
        return tuple(token for token in self._ledger.prepared(partition) if token.id not in held)

    def stale(self, partition: TopicPartition) -> Sequence[Token]:
        # Spark may use the result of another attempt: once the driver knows, it discards the tokens.
        planned = self._planned.get(partition, frozenset())
        return tuple(token for token in self._ledger.stale(partition) if token.id in planned)

    def unusable(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> Mapping[TopicPartition, str]:
        held = {p: [t.id for t in given if t.id in self._held.get(p, {})] for p, given in tokens.items()}
        again = {p: f"token {ids[0]} is committed already" for p, ids in held.items() if ids}
        return {**self._ledger.unusable(tokens), **again}

    def due(self, partition: TopicPartition) -> int | None:
        return self._ledger.due(partition)

    def prepare(self, tokens: Mapping[TopicPartition, Sequence[Token]]) -> None:
        self._ledger.prepare(tokens)

    def records(self, partition: TopicPartition) -> int:
        return self._ledger.records(partition)

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        records: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 - the driver counts the shares
        due: Mapping[TopicPartition, int] | None = None,  # noqa: ARG002 - a DataFrame's offsets have no gaps
    ) -> None:
        for partition, offset in offsets.items():
            self._held.setdefault(partition, {}).update({token.id: token for token in offset.tokens})
            self._commits[partition] = OffsetAndMetadata(offset.offset, offset.metadata)

    def mark_published(self, partition: TopicPartition) -> None:
        self._ledger.mark_published(partition)

    def withdraw(
        self,
        partition: TopicPartition,
        offset: OffsetAndMetadata,
        discard: Sequence[Token],
        partly_visible_to: int | None = None,  # noqa: ARG002 - always refused
    ) -> None:
        committed = self._ledger.committed(partition)
        # The last micro-batch is meant: its tokens are published before another one is committed.
        written = self._frames.written[-1] if self._frames and self._frames.written else "a micro-batch"
        lost = f", because {', '.join(token.id for token in discard)} cannot be published" if discard else ""
        at = committed.offset if committed else 0
        raise ConnectException(
            f"{partition}: in {written}, the task rewinds from offset {at} to {offset.offset}{lost}, but a "
            f"DataFrame's rows cannot be read again. Write them again with another 'name' and 'topic', and "
            f"delete this connector with 'sinksdk delete --force'"
        )

    def is_withdrawn(self, partition: TopicPartition) -> bool:
        return self._ledger.is_withdrawn(partition)

    def mark_discarded(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self._ledger.mark_discarded(partition, tokens)

    def flush(self) -> None:
        self._ledger.flush()


class FrameTask:
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
        partition, start = self.partition, self._start
        plan = RangePlan.open_ended(partition, due=True)
        (outcome,) = self._run([plan], self._numbered(batches))
        if outcome.failure is not None:
            raise ConnectException(f"{self._label}: {outcome.failure.message}")
        commit = self._commits.held_commit(partition) or OffsetAndMetadata(start)
        if commit.offset < outcome.position:
            raise ConnectException(
                f"{self._label}: pre_commit returned offset {commit.offset} of {partition} while closing, "
                f"but {outcome.position} was delivered: a DataFrame's rows cannot be read again, so the task "
                f"must write all of them while is_closing() is true"
            )
        return Share(self._plan.generation, partition, start, commit, outcome.records)

    def settle(self) -> Sequence[PartitionOutcome]:
        """Publish committed tokens and discard the others."""
        return self._run(self._plan.tasks[self._number].ranges, ())

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterator[SinkRecords]:
        if self.partition not in self._worker.assignment():
            return  # the task failed to open the partition, so the sink's own offset is unknown
        # A sink that keeps its own offsets may be ahead of the commit. If an earlier attempt at this
        # micro-batch wrote the rows, they are skipped. If a write was never committed, offsets continue from
        # the sink's.
        before = self._ledger.begun
        start = before.base if before else self._start
        if start is None:
            start = self._worker.position(self.partition)
            self._ledger.begin_at(start)
        yield from as_records(batches, self.partition, start)

    @property
    def partition(self) -> TopicPartition:
        return self._plan.tasks[self._number].ranges[0].topic_partition

    @property
    def _start(self) -> int:
        committed = self._commits.committed(self.partition)
        return committed.offset if committed else 0

    def _run(self, plans: Sequence[RangePlan], batches: Iterable[SinkRecords]) -> Sequence[PartitionOutcome]:
        run = SinkTaskRun(self._worker, plans, batches, closing=lambda: None, clock=self._clock)
        return run.run()
