"""Watches over one running generation: progress, closing, and the end one way or another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.totals import task_progress
from sinksdk.engine import PartitionOutcome
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import Failure
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.measures import TaskMeasures
from sinksdk.runtime.generation_watch import GenerationWatch, RunningJob
from sinksdk.store import Store
from sinksdk.store.generations import Generations
from sinksdk.store.records import (
    GenerationPlan,
    PlannedRange,
)
from sinksdk.store.reports import (
    PartitionProgress,
    TaskProgress,
)

log = logging.getLogger(__name__)


class Result(Protocol):
    """What one task reported."""

    @property
    def task(self) -> int:
        """Its number."""
        ...

    @property
    def outcomes(self) -> Sequence[PartitionOutcome]:
        """What became of its partitions."""
        ...

    @property
    def measures(self) -> TaskMeasures:
        """What it has measured."""
        ...


class RunningGeneration(RunningJob, Protocol):
    """The job of a sink's generation."""

    def results(self) -> Sequence[Result]:
        """What its tasks reported. Raises ConnectException when the job itself failed."""
        ...


class Supervisor:
    """Runs one generation to its end.

    Args:
        store: where its tasks write their progress.
        connector: the connector's name.
        generations: the driver's hold on it.
        signal: asks to close.
        graceful: seconds the tasks have for closing.
        is_hopeless: whether a partition's failure ends the connector; then the others close.
        must_close: why the generation shall close, other than for its own tasks' failures: an operator
            wants it, a topic is gone. Asked every second or so; must not block.
        on_progress: told of all tasks' positions.
        on_closing: told that the tasks were asked to close.
        clock: time.
    """

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
        self._store = store
        self._connector = connector
        self._generations = generations
        self._signal = signal
        self._graceful = graceful
        self._is_hopeless = is_hopeless
        self._must_close = must_close
        self._on_progress = on_progress
        self._on_closing = on_closing
        self._clock = clock
        self.measures: Mapping[int, TaskMeasures] = {}
        """What the tasks have measured, by their numbers, once the generation has ended."""
        self.away: RetriableException | None = None
        """What was away when the job failed, and comes back by itself: nobody has failed then."""
        self._hung: dict[int, Failure] = {}

    def run(self, running: RunningGeneration, plan: GenerationPlan) -> list[PartitionOutcome]:
        """Wait for the end.

        Returns:
            What became of every planned partition. Those of a task that reported nothing, because it
            was cancelled or the job failed, failed with that cause (cancelled, and where what it needs is
            :attr:`away`: without one).

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
            ConfigException: the executors cannot run its tasks.
        """
        watch = GenerationWatch(
            self._store,
            self._connector,
            self._generations,
            self._signal,
            graceful=self._graceful,
            look=lambda: self._look(plan),
            on_closing=self._on_closing,
            clock=self._clock,
        )
        is_cancelled = watch.run(running, plan)
        try:
            results, failure = running.results(), None
        except ConfigException:
            raise  # no attempt would do any better
        except RetriableException as error:
            self.away = error
            results, failure = [], None
        except ConnectException as error:
            if not is_cancelled:
                log.warning("generation %d: %s", plan.generation, error, exc_info=True)
            results, failure = [], None if is_cancelled else Failure.of(error, shared=True)
        outcomes = [outcome for result in results for outcome in result.outcomes]
        tasks = self._tasks(plan)
        progress = _partitions(tasks.values())
        self._on_progress(progress)
        self.measures = {task: row.measures for task, row in tasks.items()}
        self.measures |= {result.task: result.measures for result in results if result.outcomes}
        if watch.asked is not None:
            took = closing_trail(self._clock.now() - watch.asked, self.measures)
            log.info("generation %d: closing took %s", plan.generation, took)
        known = {row.topic_partition: row for row in progress}
        reported = {outcome.partition for outcome in outcomes}
        return outcomes + [
            _unheard(planned, known.get(planned.topic_partition), self._hung.get(task, failure))
            for task, share in enumerate(plan.tasks)
            for planned in share.ranges
            if planned.topic_partition not in reported
        ]

    def _look(self, plan: GenerationPlan) -> ClosingReason | None:
        progress = _partitions(self._tasks(plan).values())
        self._on_progress(progress)
        reason = self._must_close()
        if reason is None and (self._hung or any(map(self._is_hopeless, progress))):
            reason = ClosingReason.FAILURE
        return reason

    def _tasks(self, plan: GenerationPlan) -> dict[int, TaskProgress]:
        """What the generation's tasks have reported so far."""
        rows = task_progress(self._store, self._connector, len(plan.tasks))
        found = {task: row for task, row in rows.items() if row.generation == plan.generation}
        for task, row in found.items():
            self._note_hang(task, row.hangs)
        return found

    def _note_hang(self, task: int, where: str | None) -> None:
        """A task whose author's code does not come back: no other task waits for it for ever."""
        if where is None or task in self._hung:
            return
        log.error("%s", where)
        self._hung[task] = Failure(ConnectException.__name__, where.splitlines()[0], where)


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
