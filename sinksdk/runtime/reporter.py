"""Reports a running connector's progress: to its listener, the store and a consumer group."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from sinksdk.context import ClosingReason
from sinksdk.control.consumer_group import ConsumerGroupSync
from sinksdk.control.ends import Ends, EndsKeeper
from sinksdk.control.history import Amounts, HistoryKeeper, TotalsKeeper
from sinksdk.control.progress import Listener, ProgressTracker
from sinksdk.model.measures import LOST, TaskMeasures
from sinksdk.model.outcome import PartitionOutcome, SourceTaskOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.session import DriverSession
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress

Offsets = Mapping[TopicPartition, int]


class Reporter:
    """Reports a connector's generations. Informational: losing it loses no record."""

    def __init__(self, session: DriverSession, listener: Listener) -> None:
        self._listener = listener
        self._status = session.status
        self._history = HistoryKeeper(session.store, session.name, session.clock)
        self._totals = TotalsKeeper(session.store, session.name)

    def catch_up(self) -> None:
        """Load the state of earlier drivers. Only after a claim has fenced them."""
        self._totals.catch_up()

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        self._listener.planned(plan)
        self._history.generation_begins()

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""
        self._listener.closing(generation, reason)


class SinkReporter(Reporter):
    """Reports one sink's progress.

    Args:
        sync: copies published offsets to a consumer group.
        opens_in: seconds until a partition may be opened again.
    """

    def __init__(
        self,
        session: DriverSession,
        listener: Listener,
        sync: ConsumerGroupSync,
        opens_in: Callable[[TopicPartition], float],
    ) -> None:
        super().__init__(session, listener)
        self.tracker = ProgressTracker(opens_in)
        """The view of each partition."""
        self._ends = EndsKeeper(session.store, session.name, session.clock)
        self._sync = sync

    def catch_up(self) -> None:
        """As of any connector; and its source's ends."""
        super().catch_up()
        self._ends.catch_up()

    def claimed(self, committed: Offsets, visible: Offsets) -> None:
        """Report the commits at the start of the next generation, and their published offsets."""
        self.tracker.committed(committed)
        self._ends.committed(committed)
        self._sync.follow(visible)

    def source_ends(self, ends: Ends, unseen_for: float) -> None:
        """Report the source's end offsets, and for how many seconds they have been unknown; 0: known."""
        if unseen_for:
            self._ends.missed(unseen_for)
        else:
            self._ends.saw(ends)
        self._ends.save_if_due()

    def idle(self) -> None:
        """Report that no generation is due."""
        self._status.save_if_due()
        self._listener.progress(self.tracker.progress())

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        super().planned(plan)
        self.tracker.generation_begins()

    def progress(self, outcomes: Sequence[PartitionOutcome]) -> None:
        """Report the outcomes so far of a running generation's partitions."""
        views = self.tracker.progress(outcomes)
        self._history.progress({o.partition: Amounts.of(o) for o in outcomes})
        self._status.save_if_due()
        self._ends.committed({o.partition: o.committed for o in outcomes})
        self._sync.follow({o.partition: o.visible for o in outcomes if o.visible is not None})
        self._listener.progress(views)

    def measured(
        self,
        generation: int,
        measures: Mapping[int, TaskMeasures],
        outcomes: Sequence[PartitionOutcome],
        lost: Mapping[TopicPartition, int],
        existing: Collection[TopicPartition] | None,
    ) -> None:
        """Add up an ended generation.

        Args:
            lost: offsets that its commits have skipped for good.
            existing: the source's partitions; None while they are unknown.
        """
        counts = {o.partition: dict(o.counts) for o in outcomes}
        for partition, offsets in lost.items():
            counts[partition][LOST] = offsets
        self._totals.add(generation, measures, counts, existing)

    def ended(self, generation: int, outcomes: Sequence[PartitionOutcome]) -> None:
        """Report the outcomes of a generation's partitions."""
        self._ends.committed({outcome.partition: outcome.committed for outcome in outcomes})
        self._ends.save()
        views = self.tracker.ended(outcomes)
        self._history.ended(
            {o.partition: Amounts.of(o) for o in outcomes},
            {o.partition: o.failure for o in outcomes if o.failure},
        )
        self._sync.follow({o.partition: o.visible for o in outcomes if o.visible is not None})
        self._listener.ended(generation, views)


class SourceReporter(Reporter):
    """Reports one source's progress."""

    def progress(self, rows: Mapping[int, SourceProgress]) -> None:
        """What the running generation's tasks report, by number."""
        self._status.save_if_due()
        self._history.progress({task: Amounts.of_task(row) for task, row in rows.items()})
        self._listener.tasks(dict(sorted(rows.items())))

    def measured(
        self, generation: int, measures: Mapping[int, TaskMeasures], outcomes: Sequence[SourceTaskOutcome]
    ) -> None:
        """What an ended generation comes to."""
        self._totals.add(generation, measures, {})
        self._history.ended(
            {task: Amounts.of_task(outcome) for task, outcome in enumerate(outcomes)},
            {task: outcome.failure for task, outcome in enumerate(outcomes) if outcome.failure},
        )

    def ended(self, generation: int, outcomes: Sequence[SourceTaskOutcome]) -> None:
        """How a generation's tasks have ended, by number."""
        self._listener.tasks_ended(
            generation, {task: _ended(outcome) for task, outcome in enumerate(outcomes)}
        )


def _ended(outcome: SourceTaskOutcome) -> SourceProgress:
    return SourceProgress(
        state=outcome.end,
        records=outcome.records,
        transactions=outcome.transactions,
        failure=outcome.failure.message if outcome.failure else None,
    )
