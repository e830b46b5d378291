"""Reports a connector's progress to its listener, the store and a consumer group, for information only."""

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
    def __init__(self, session: DriverSession, listener: Listener) -> None:
        self._listener = listener
        self._status = session.status
        self._history = HistoryKeeper(session.store, session.name, session.clock)
        self._totals = TotalsKeeper(session.store, session.name)

    def catch_up(self) -> None:
        # The reports are read only after a claim has fenced earlier drivers.
        self._totals.catch_up()

    def planned(self, plan: GenerationPlan) -> None:
        self._listener.planned(plan)
        self._history.generation_begins()

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self._listener.closing(generation, reason)


class SinkReporter(Reporter):
    def __init__(
        self,
        session: DriverSession,
        listener: Listener,
        sync: ConsumerGroupSync,
        opens_in: Callable[[TopicPartition], float],
    ) -> None:
        super().__init__(session, listener)
        self.tracker = ProgressTracker(opens_in)
        self._ends = EndsKeeper(session.store, session.name, session.clock)
        self._sync = sync

    def catch_up(self) -> None:
        super().catch_up()
        self._ends.catch_up()

    def claimed(self, committed: Offsets, visible: Offsets) -> None:
        self.tracker.committed(committed)
        self._ends.committed(committed)
        self._sync.follow(visible)

    # ``unseen_for`` is in seconds; 0: the end offsets are known.
    def source_ends(self, ends: Ends, unseen_for: float) -> None:
        if unseen_for:
            self._ends.mark_unknown(unseen_for)
        else:
            self._ends.update(ends)
        self._ends.save_if_due()

    def idle(self) -> None:
        self._status.save_if_due()
        self._listener.progress(self.tracker.progress())

    def planned(self, plan: GenerationPlan) -> None:
        super().planned(plan)
        self.tracker.generation_begins()

    def progress(self, outcomes: Sequence[PartitionOutcome]) -> None:
        partitions = self.tracker.progress(outcomes)
        self._history.progress({o.partition: Amounts.of(o) for o in outcomes})
        self._status.save_if_due()
        self._ends.committed({o.partition: o.committed for o in outcomes})
        self._sync.follow({o.partition: o.visible for o in outcomes if o.visible is not None})
        self._listener.progress(partitions)

    def measured(
        self,
        generation: int,
        measures: Mapping[int, TaskMeasures],
        outcomes: Sequence[PartitionOutcome],
        lost: Mapping[TopicPartition, int],
        existing: Collection[TopicPartition] | None,
    ) -> None:
        counts = {o.partition: dict(o.counts) for o in outcomes}
        for partition, offsets in lost.items():
            counts[partition][LOST] = offsets
        self._totals.add(generation, measures, counts, existing)

    def ended(self, generation: int, outcomes: Sequence[PartitionOutcome]) -> None:
        self._ends.committed({outcome.partition: outcome.committed for outcome in outcomes})
        self._ends.save()
        partitions = self.tracker.ended(outcomes)
        self._history.ended(
            {o.partition: Amounts.of(o) for o in outcomes},
            {o.partition: o.failure for o in outcomes if o.failure},
        )
        self._sync.follow({o.partition: o.visible for o in outcomes if o.visible is not None})
        self._listener.ended(generation, partitions)


class SourceReporter(Reporter):
    def progress(self, rows: Mapping[int, SourceProgress]) -> None:
        self._status.save_if_due()
        self._history.progress({task: Amounts.of_task(row) for task, row in rows.items()})
        self._listener.tasks(dict(sorted(rows.items())))

    def measured(
        self, generation: int, measures: Mapping[int, TaskMeasures], outcomes: Sequence[SourceTaskOutcome]
    ) -> None:
        self._totals.add(generation, measures, {})
        self._history.ended(
            {task: Amounts.of_task(outcome) for task, outcome in enumerate(outcomes)},
            {task: outcome.failure for task, outcome in enumerate(outcomes) if outcome.failure},
        )

    def ended(self, generation: int, outcomes: Sequence[SourceTaskOutcome]) -> None:
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
