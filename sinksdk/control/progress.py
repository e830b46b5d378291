"""What a driver shows of its partitions: put together from commits, ends and what tasks report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sinksdk.context import ClosingReason
from sinksdk.engine import PartitionOutcome
from sinksdk.records import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import PartitionProgress

LOST: Final = "lost"
"""Count of offsets after a partition's commit that the source no longer had (``on.data.loss=skip``)."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition for a watcher.

    Args:
        partition: which.
        committed: next offset to read after the last commit, None before the first.
        position: offset after the last record read by a running task.
        end: where the source ended when it was last asked.
        records: records delivered in the running (or last) generation.
        counts: what its task counted since this driver started: files, bytes, …; and :data:`LOST`.
        failure: why it ended early.
        tail: of ``records``, those above the commit, which will be read again; known once the
            generation has ended.
    """

    partition: TopicPartition
    committed: int | None
    position: int | None
    end: int
    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    tail: int = 0

    @property
    def lag(self) -> int:
        """Offsets that are there and not committed."""
        return max(self.end - (self.committed or 0), 0)


class Listener(Protocol):
    """Watches a driver. Called from the driver's thread; must return soon."""

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        ...

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """Positions have moved, or a moment has passed."""
        ...

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""
        ...

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """A generation has ended."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTaskView:
    """One task of a source for a watcher.

    Args:
        task: its number.
        state: which calls it has had (``SourceTaskState``), or how it ended (``End``).
        records: records it has committed in the running (or last) generation.
        transactions: in how many transactions.
        rate: records per second, lately.
        failure: why it ended early.
    """

    task: int
    state: str
    records: int = 0
    transactions: int = 0
    rate: float = 0.0
    failure: str | None = None


class SourceListener(Protocol):
    """Watches a source's driver. Called from the driver's thread; must return soon."""

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        ...

    def tasks(self, tasks: Sequence[SourceTaskView]) -> None:
        """Tasks have got further, or a moment has passed."""
        ...

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""
        ...

    def tasks_ended(self, generation: int, tasks: Sequence[SourceTaskView]) -> None:
        """A generation has ended."""
        ...


class Silent:
    """A listener that does nothing, of sinks and of sources."""

    def planned(self, plan: GenerationPlan) -> None:
        """See :class:`Listener`."""

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """See :class:`Listener`."""

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """See :class:`Listener`."""

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """See :class:`Listener`."""

    def tasks(self, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`SourceListener`."""

    def tasks_ended(self, generation: int, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`SourceListener`."""


Report = PartitionProgress | PartitionOutcome
"""What a task says of a partition: while it runs, or once it has ended."""


class ProgressTracker:
    """Remembers what was last known of each partition."""

    def __init__(self) -> None:
        self._ends: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._counts: dict[TopicPartition, dict[str, int]] = {}
        self._before: dict[TopicPartition, dict[str, int]] = {}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are the commits."""
        self._committed = dict(offsets)

    def ends(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The source ends there. A partition that is missing stays as it was last seen."""
        self._ends |= offsets

    def generation_begins(self) -> None:
        """What tasks count from now on comes on top of what was counted before."""
        self._before = {partition: dict(counts) for partition, counts in self._counts.items()}

    def note(self, partition: TopicPartition, name: str, count: int) -> None:
        """A count that no task knows of."""
        self._counts.setdefault(partition, {})[name] = count

    def count(self, rows: Sequence[Report]) -> None:
        """Take in what the running generation's tasks have counted since it began."""
        for row in rows:
            partition = partition_of(row)
            base = self._before.get(partition, {})
            self._counts[partition] = {
                name: base.get(name, 0) + row.counts.get(name, 0) for name in {*base, *row.counts}
            }

    def ended(self, outcomes: Sequence[PartitionOutcome]) -> None:
        """A generation has ended: its counts and commits stay."""
        self.count(outcomes)
        self._committed |= {o.partition: o.committed for o in outcomes if o.committed is not None}

    def of(self, rows: Sequence[Report] = ()) -> list[PartitionView]:
        """All partitions, by topic and number; those that are being read as their tasks report."""
        running = {partition_of(row): row for row in rows}
        return [
            self._view(partition, end, running.get(partition))
            for partition, end in sorted(self._ends.items())
        ]

    def _view(self, partition: TopicPartition, end: int, row: Report | None) -> PartitionView:
        committed = self._committed.get(partition)
        if row is not None and row.committed is not None:
            committed = row.committed
        return PartitionView(
            partition,
            committed,
            _position_of(row),
            end,
            row.records if row else 0,
            dict(self._counts.get(partition, {})),
            _failure_of(row),
            row.tail if isinstance(row, PartitionOutcome) else 0,
        )


def partition_of(row: Report) -> TopicPartition:
    """Whose report this is."""
    return row.topic_partition if isinstance(row, PartitionProgress) else row.partition


def _position_of(row: Report | None) -> int | None:
    if row is None:
        return None
    return row.position if isinstance(row, PartitionProgress) else row.delivered


def _failure_of(row: Report | None) -> str | None:
    if row is None or row.failure is None:
        return None
    return row.failure if isinstance(row.failure, str) else row.failure.message
