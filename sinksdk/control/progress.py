"""A driver's view of its partitions, from commits, end offsets and tasks' reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sinksdk.context import ClosingReason
from sinksdk.model.measures import added
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.status import PartitionStatus
from sinksdk.offsets import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress


class Listener:
    """Watches a driver, in the driver's thread: each method must return soon."""

    def planned(self, plan: GenerationPlan) -> None: ...

    def progress(self, partitions: Sequence[PartitionStatus]) -> None: ...

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None: ...

    def closing(self, generation: int, reason: ClosingReason) -> None: ...

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None: ...

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        """Receive a source's tasks by number; ``state`` is how each ended (``End``)."""


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
        self._shown: dict[TopicPartition, tuple[tuple[object, ...], PartitionStatus]] = {}

    def committed(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._committed = dict(offsets)

    def ends(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._ends |= offsets

    def generation_begins(self) -> None:
        """Add counters of the new generation's tasks to the earlier ones."""
        self._before = {partition: dict(counts) for partition, counts in self._counts.items()}

    def note(self, partition: TopicPartition, name: str, count: int) -> None:
        self._counts.setdefault(partition, {})[name] = count

    def progress(self, outcomes: Sequence[PartitionOutcome] = ()) -> list[PartitionStatus]:
        """Return all partitions; running ones as their tasks report."""
        for outcome in outcomes:
            base = self._before.get(outcome.partition, {})
            self._counts[outcome.partition] = added(base, outcome.counts)
        running = {outcome.partition: outcome for outcome in outcomes}
        return [
            self._status(partition, end, running.get(partition))
            for partition, end in sorted(self._ends.items())
        ]

    def ended(self, outcomes: Sequence[PartitionOutcome]) -> list[PartitionStatus]:
        self._committed |= {o.partition: o.committed for o in outcomes if o.committed is not None}
        return self.progress(outcomes)

    def _status(
        self, partition: TopicPartition, end: int, outcome: PartitionOutcome | None
    ) -> PartitionStatus:
        committed = self._committed.get(partition)
        if outcome is not None and outcome.committed is not None:
            committed = outcome.committed
        counts, inputs = self._counts.get(partition, {}), (committed, end, self._opens_in(partition), outcome)
        before = self._shown.get(partition)
        # Of thousands of partitions few change between two reports.
        if before is not None and before[0] == inputs and before[1].counts == counts:
            return before[1]
        status = PartitionStatus.reported(
            partition,
            committed,
            outcome.position if outcome else None,
            end,
            error=outcome.failure.message if outcome and outcome.failure else None,
            counts=dict(counts),
            records=outcome.records if outcome else 0,
            tail=outcome.tail if outcome else 0,
            opens_in=inputs[2],
        )
        self._shown[partition] = inputs, status
        return status
