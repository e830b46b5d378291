"""Run one task in the real engine: in memory, single-threaded, in milliseconds."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from sinksdk.config import ConnectorConfig
from sinksdk.context import ClosingReason
from sinksdk.engine import EngineOptions, TaskName, WorkerSinkTask
from sinksdk.engine.commits import DeadLetters
from sinksdk.errors import FencedException
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.records import SinkRecord, SinkRecords
from sinksdk.settings.model import written
from sinksdk.task import SinkTask
from sinksdk.testing.doubles import MemoryCommitLog
from sinksdk.testing.faults import ManualClock

_OBSERVED = (
    *("initialize", "start", "open", "put", "flush"),
    *("pre_commit", "publish", "discard", "close", "stop"),
)


@dataclass(frozen=True, slots=True)
class Call:
    """One recorded call of a task's method.

    Args:
        is_closing: the value of ``context.is_closing()`` when the method was called.
    """

    name: str
    arguments: tuple[Any, ...]
    is_closing: bool
    raised: BaseException | None = field(default=None, compare=False)


class SinkTaskHarness:
    """Runs a task as the runtime would, without Spark and without a store.

    ::

        harness = SinkTaskHarness(MyTask, config)
        harness.start()
        harness.assign(tp)
        harness.deliver(tp, [b"one", b"two"])
        harness.revoke(tp)
        assert harness.committed == {tp: OffsetAndMetadata(2)}

    Args:
        task: the task's class or a function that creates a task; or one instance, which cannot be replaced
            by :meth:`crash`, :meth:`successor` or :meth:`alter`.
        config: the argument of ``start``.
        committed: commits to start with: offsets, or offsets with metadata and tokens.
        options: intervals, retries and converters of the engine; by default those of ``config``.
        dead_letters: receives bad records; by default they are dropped.
        generation: the value of ``context.generation()``.
        task_config: the entry of the connector's ``task_configs`` for this task, set in ``config``.
        log: a commit log to continue, instead of ``committed``.
        clock: a clock to share with other objects of the test.
    """

    def __init__(
        self,
        task: Callable[[], SinkTask] | SinkTask,
        config: Any = None,
        *,
        committed: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        options: EngineOptions | None = None,
        dead_letters: DeadLetters | None = None,
        generation: int = 1,
        log: MemoryCommitLog | None = None,
        clock: ManualClock | None = None,
        task_config: Mapping[str, str] | None = None,
    ) -> None:
        self._make = task
        self._raw = written(config) if isinstance(config, ConnectorConfig) else {}
        if task_config and isinstance(config, ConnectorConfig):
            config = type(config).parse({**self._raw, **task_config})
        self._raw |= task_config or {}
        self._config = config
        self._options = options or (EngineOptions.of(config) if isinstance(config, ConnectorConfig) else None)
        self._dead_letters = dead_letters
        self._generation = generation
        self._next: dict[TopicPartition, int] = {}
        self.clock = clock or ManualClock()
        """The clock that :meth:`advance` moves."""
        self.calls: list[Call] = []
        """Every call of the task's methods, in order."""
        self.log = log or MemoryCommitLog(
            {
                p: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
                for p, offset in (committed or {}).items()
            }
        )
        """Durable commits and prepared tokens."""
        self._build()

    def _build(self) -> None:
        self.task: SinkTask = self._make if isinstance(self._make, SinkTask) else self._make()
        for name in _OBSERVED:
            setattr(self.task, name, self._observed(name, getattr(self.task, name)))
        self.worker = WorkerSinkTask(
            self.task,
            TaskName("harness", 0),
            self._config,
            commits=self.log,
            clock=self.clock,
            generation=self._generation,
            raw_config=self._raw,
            options=self._options,
            dead_letters=self._dead_letters,
        )

    def _observed(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        # The name of a lambda, or of a decorator without functools.wraps, is not that of the attribute.
        @functools.wraps(method)
        def observed(*arguments: Any) -> Any:
            context = getattr(self.task, "context", None)
            closing = bool(context and context.is_closing())
            place = len(self.calls)
            given = tuple(copy.copy(item) if isinstance(item, dict | list) else item for item in arguments)
            self.calls.append(Call(name, given, closing))
            try:
                return method(*arguments)
            except BaseException as error:
                self.calls[place] = Call(name, given, closing, error)
                raise

        observed.__name__ = name
        return observed

    def start(self) -> None:
        """Call the task's ``initialize`` and ``start``, and raise the error of either."""
        self.worker.start()

    def assign(
        self,
        *partitions: TopicPartition,
        limits: OffsetRange | None = None,
        held: OffsetRange | None = None,
    ) -> None:
        """Open partitions at their commits; open ones stay open.

        Args:
            limits: the range to read of each partition; by default from the commit, or 0, without an end.
            held: the offsets that the source has of each partition; ``context.offset`` cannot move beyond
                them. None: no limit.
        """
        plans = [
            RangePlan.of(p, *limits, log=held) if limits else RangePlan.open_ended(p, log=held)
            for p in partitions
        ]
        self._run_fenced(lambda: self.worker.open(plans))
        for partition in partitions:
            committed = self.log.committed(partition)
            start = max(committed.offset if committed else 0, limits.start if limits else 0)
            self._next[partition] = start

    def deliver(
        self, partition: TopicPartition, records: Iterable[bytes | str | SinkRecord | None] | SinkRecords
    ) -> None:
        """Put records as one batch; a commit that the task requests meanwhile follows at once.

        The task receives at most ``max.poll.records`` at a time, until it raises RetriableException or calls
        ``context.timeout``.

        Args:
            records: records or values; values get the next offsets.
        """
        batch = records if isinstance(records, SinkRecords) else self._batch(partition, list(records))
        self._run_fenced(lambda: self.worker.deliver(batch), self.worker.tick, self._put_rest)
        if len(batch):
            self._next[partition] = batch.next_offset

    def _batch(
        self, partition: TopicPartition, records: Sequence[bytes | str | SinkRecord | None]
    ) -> SinkRecords:
        offset = self._next.get(partition, 0)
        rows = []
        for record in records:
            if isinstance(record, SinkRecord):
                rows.append(record)
            else:
                value = record.encode() if isinstance(record, str) else record
                rows.append(SinkRecord(*partition, offset=offset, value=value))
            offset = rows[-1].offset + 1
        return SinkRecords.of(partition, rows)

    def advance(self, seconds: float) -> None:
        """Advance the clock, then do what is due: a redelivery, a periodic commit."""
        self.clock.advance(seconds)
        self.tick()

    def tick(self) -> None:
        """Do what is due now, without moving the clock."""
        self._run_fenced(self.worker.tick, self._put_rest)

    def _put_rest(self) -> None:
        while self.worker.pending and not self.worker.is_put_off:
            self.worker.tick()

    def commit(self) -> None:
        """Make a periodic commit now."""
        self._run_fenced(self.worker.commit)

    def finish(self, partition: TopicPartition, closing: ClosingReason | None = None) -> None:
        """End the range of a partition, as when all of it has been read."""
        self._run_fenced(lambda: self.worker.finish(partition, closing), self.worker.flush)

    def revoke(
        self,
        *partitions: TopicPartition,
        reason: ClosingReason = ClosingReason.REBALANCE,
        timeout: float | None = None,
    ) -> None:
        """Close partitions (by default all) with a closing commit, then call ``close``."""
        chosen = partitions or None
        self._run_fenced(lambda: self.worker.close(reason, chosen, timeout=timeout), self.worker.flush)

    def lose(self, *partitions: TopicPartition) -> None:
        """Close partitions (by default all) without a commit, because another owner has them already."""
        self.worker.lose(partitions or None)

    def fence(self) -> None:
        """Fence the task, as a successor does: every later write of its commit log fails."""
        self.log = self.log.succeed()

    def stop(self) -> None:
        """Shut down: revoke all partitions, then call ``stop``, also when the task is fenced meanwhile."""
        try:
            self.revoke(reason=ClosingReason.SHUTDOWN)
        finally:
            self.worker.stop()

    def crash(self) -> None:
        """Kill the process: a new task, not started yet, takes over the durable state."""
        self._check_can_make_another()
        self.log = self.log.succeed()
        self._next.clear()
        self._build()

    def successor(self, log: MemoryCommitLog | None = None) -> Self:
        """Return a harness whose task, not started yet, takes over; this one continues as a zombie.

        Args:
            log: the successor's commit log; by default this one's.
        """
        self._check_can_make_another()
        heir = copy.copy(self)
        heir.log = log or self.log.succeed()
        heir.calls = []
        heir._next = {}  # noqa: SLF001 - same class
        heir._build()  # noqa: SLF001 - the same
        return heir

    def alter(self, partition: TopicPartition, offset: int | None) -> None:
        """Alter an offset as an operator does: stop the task; a new one, not started yet, takes over.

        Args:
            offset: the new offset. None removes the commit.
        """
        self._check_can_make_another()
        self.stop()
        self.log = self.log.altered(partition, offset)
        self._next.clear()
        self._build()

    def _check_can_make_another(self) -> None:
        if isinstance(self._make, SinkTask):
            raise TypeError(
                "pass the task's class or a function that creates a task to the harness, not an instance"
            )

    @property
    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Durable commits, each with the tokens that are still to be published."""
        return self.log.offsets

    def position(self, partition: TopicPartition) -> int:
        """Return the offset that :meth:`deliver` gives to the next value."""
        return self._next[partition]

    def outcome(self, partition: TopicPartition) -> PartitionOutcome:
        """Return the outcome of a partition so far. Raises KeyError for one that was never assigned."""
        return {outcome.partition: outcome for outcome in self.worker.outcomes()}[partition]

    def called(self, name: str) -> list[Call]:
        """Return the calls of one method."""
        return [call for call in self.calls if call.name == name]

    def names(self) -> list[str]:
        """Return the names of the methods called, in order."""
        return [call.name for call in self.calls]

    def _run_fenced(self, *steps: Callable[[], None]) -> None:
        try:
            for step in steps:
                step()
        except FencedException:
            self.worker.lose()
            raise
