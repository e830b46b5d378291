"""A driver's view of its partitions: from commits, end offsets and tasks' reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sinksdk.context import ClosingReason
from sinksdk.engine.context import WITHDRAWN
from sinksdk.model.measures import added
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress

LOST: Final = "sinksdk.lost_offsets"
"""Count of offsets after a partition's commit that the source no longer had (``on.data.loss=skip``)."""

OWN_COUNTS: Final = frozenset({LOST, WITHDRAWN})
"""Counts that are the engine's, not the connector's own."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A driver's view of one partition.

    Args:
        committed: next offset to read after the last commit, None before the first.
        position: offset after the last record read by a running task.
        end: end offset of the source at the last check.
        records: records delivered in the running (or last) generation.
        counts: its task's counters since this driver started: files, bytes, …; and :data:`LOST`.
        failure: why it ended early.
        tail: of ``records``, those above the commit.
        opens_in: of one that failed or waits: seconds until it may be opened again.
    """

    partition: TopicPartition
    committed: int | None
    position: int | None
    end: int
    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    tail: int = 0
    opens_in: float = 0.0


class Listener:
    """Watches a driver. Called from the driver's thread; must return soon. This one does nothing."""

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """Called when positions have moved, and periodically."""

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        """As :meth:`progress`, of a source: its tasks by number."""

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """A generation has ended."""

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        """As :meth:`ended`, of a source: ``state`` is how each task ended (``End``)."""


def _at_once(_: TopicPartition) -> float:
    return 0.0


class ProgressTracker:
    """Keeps the last known state of each partition.

    Args:
        opens_in: seconds until a partition may be opened again.
    """

    def __init__(self, opens_in: Callable[[TopicPartition], float] = _at_once) -> None:
        self._opens_in = opens_in
        self._ends: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._counts: dict[TopicPartition, dict[str, int]] = {}
        self._before: dict[TopicPartition, dict[str, int]] = {}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        """These are the commits."""
        self._committed = dict(offsets)

    def ends(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Update the source's end offsets. Partitions not given keep theirs."""
        self._ends |= offsets

    def generation_begins(self) -> None:
        """Add counters of the new generation's tasks to the earlier ones."""
        self._before = {partition: dict(counts) for partition, counts in self._counts.items()}

    def note(self, partition: TopicPartition, name: str, count: int) -> None:
        """Set a counter that tasks do not report."""
        self._counts.setdefault(partition, {})[name] = count

    def progress(self, outcomes: Sequence[PartitionOutcome] = ()) -> list[PartitionView]:
        """All partitions, by topic and number; running ones as their tasks report.

        Keeps the counters of the running generation's tasks.
        """
        for outcome in outcomes:
            base = self._before.get(outcome.partition, {})
            self._counts[outcome.partition] = added(base, outcome.counts)
        running = {outcome.partition: outcome for outcome in outcomes}
        return [
            self._view(partition, end, running.get(partition))
            for partition, end in sorted(self._ends.items())
        ]

    def ended(self, outcomes: Sequence[PartitionOutcome]) -> list[PartitionView]:
        """All partitions once a generation has ended: its counts and commits stay."""
        self._committed |= {o.partition: o.committed for o in outcomes if o.committed is not None}
        return self.progress(outcomes)

    def _view(self, partition: TopicPartition, end: int, row: PartitionOutcome | None) -> PartitionView:
        committed, counts = self._committed.get(partition), dict(self._counts.get(partition, {}))
        opens_in = self._opens_in(partition)
        if row is None:
            return PartitionView(partition, committed, None, end, counts=counts, opens_in=opens_in)
        if row.committed is not None:
            committed = row.committed
        return PartitionView(
            partition,
            committed,
            row.position,
            end,
            row.records,
            counts,
            row.failure.message if row.failure else None,
            row.tail,
            opens_in,
        )
