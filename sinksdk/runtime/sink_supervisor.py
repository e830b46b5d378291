"""Watches over one running generation of a sink: what became of each planned partition."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.control.requests import ClosingSignal
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import Failure
from sinksdk.runtime.supervisor import Rows, RunningTasks, Supervisor, TaskReport
from sinksdk.store import Store
from sinksdk.store.generations import Generations
from sinksdk.store.records import GenerationPlan, PlannedRange
from sinksdk.store.reports import PartitionProgress, TaskProgress
from sinksdk.support.measures import TaskMeasures

log = logging.getLogger(__name__)


class Result(TaskReport, Protocol):
    """What one task of a sink reported."""

    @property
    def outcomes(self) -> Sequence[PartitionOutcome]:
        """What became of its partitions."""
        ...


RunningGeneration = RunningTasks[Result]
"""The job of a sink's generation."""


class SinkSupervisor(Supervisor[Result]):
    """Runs one generation of a sink to its end.

    Args:
        store, connector, generations, signal, graceful, on_closing, clock: as of :class:`Supervisor`.
        is_hopeless: whether a partition's failure ends the connector; then the others close.
        must_close: why the generation is to close, other than for its own tasks' failures: an operator
            wants it, a topic is gone. Asked every second or so; must not block.
        on_progress: told of all tasks' positions.
    """

    # More than eight parameters: those of every supervisor, and three questions that only a sink asks.
    def __init__(
        self,
        store: Store,
        connector: str,
        generations: Generations,
        signal: ClosingSignal,
        *,
        graceful: float,
        is_hopeless: Callable[[PartitionProgress], bool],
        must_close: Callable[[], ClosingReason | None] = lambda: None,
        on_progress: Callable[[Sequence[PartitionProgress]], None],
        on_closing: Callable[[ClosingReason], None],
        clock: WallClock,
    ) -> None:
        super().__init__(
            store,
            connector,
            generations,
            signal,
            graceful=graceful,
            look=self._must_close_now,
            on_closing=on_closing,
            clock=clock,
        )
        self._is_hopeless = is_hopeless
        self._must_close = must_close
        self._on_progress = on_progress

    def outcomes(self, running: RunningGeneration, plan: GenerationPlan) -> list[PartitionOutcome]:
        """Wait for the end.

        Returns:
            What became of every planned partition. Those of a task that reported nothing, because it
            was cancelled or the job failed, failed with that cause (cancelled, and where what it needs is
            :attr:`away`: without one).

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
            ConfigException: the executors cannot run its tasks.
        """
        ended = self.run(running, plan)
        progress = _partitions(ended.rows.values())
        self._on_progress(progress)
        if (took := self.closing_seconds) is not None:
            trail = closing_trail(took, self.measures)
            log.info("generation %d: closing took %s", plan.generation, trail)
        outcomes = [outcome for report in ended.reports for outcome in report.outcomes]
        known = {row.topic_partition: row for row in progress}
        reported = {outcome.partition for outcome in outcomes}
        return outcomes + [
            _unheard(planned, known.get(planned.topic_partition), self.hung.get(task, ended.failure))
            for task, share in enumerate(plan.tasks)
            for planned in share.ranges
            if planned.topic_partition not in reported
        ]

    def _must_close_now(self, rows: Rows) -> ClosingReason | None:
        progress = _partitions(rows.values())
        self._on_progress(progress)
        reason = self._must_close()
        if reason is None and (self.hung or any(map(self._is_hopeless, progress))):
            reason = ClosingReason.FAILURE
        return reason


def _partitions(tasks: Iterable[TaskProgress]) -> list[PartitionProgress]:
    return [partition for task in tasks for partition in task.partitions]


def _unheard(
    planned: PlannedRange, known: PartitionProgress | None, failure: Failure | None
) -> PartitionOutcome:
    """Of a task that reported nothing; what it had committed and counted is known from its progress."""
    outcome = PartitionOutcome.unread(planned.topic_partition, planned.start, failure)
    if known is None:
        return outcome
    return replace(outcome, committed=known.committed, visible=known.visible, counts=known.counts)


_LEAST = 0.05  # seconds that are worth a word


def closing_trail(seconds: float, tasks: Mapping[int, TaskMeasures]) -> str:
    """What a generation's closing was spent with, by the phases of its slowest task.

    Args:
        seconds: from the asking until the job had ended.
        tasks: what each task has measured; those that had ended before have no closing.
    """
    spent = {
        task: sum(measures.closing_seconds.values()) for task, measures in tasks.items() if measures.closings
    }
    if not spent:
        return f"{seconds:.1f} s; no task was open any more"
    slowest = max(spent, key=lambda task: spent[task])
    phases = tasks[slowest].closing_seconds
    told = [f"{phase} {took:.1f} s" for phase, took in phases.items() if took >= _LEAST]
    rest = seconds - spent[slowest]
    if rest >= _LEAST:
        told.append(f"Spark and the driver {rest:.1f} s")
    return f"{seconds:.1f} s; the slowest, task {slowest}: {', '.join(told) or 'nothing that took long'}"
