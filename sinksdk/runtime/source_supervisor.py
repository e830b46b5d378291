"""Watches over one running generation of a source: what its tasks say, and how each of them ended."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.totals import task_progress
from sinksdk.engine.clock import WallClock
from sinksdk.engine.outcome import Failure
from sinksdk.engine.source_outcome import End, SourceTaskOutcome, SourceTaskState
from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.measures import TaskMeasures
from sinksdk.runtime.generation_watch import GenerationWatch, RunningJob
from sinksdk.store import Store
from sinksdk.store.generations import Generations
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress, TaskProgress

log = logging.getLogger(__name__)

Progress = Mapping[int, SourceProgress]
"""How far the tasks of a generation are, by number; those that have not begun are missing."""


class SourceResult(Protocol):
    """What one task reported."""

    @property
    def task(self) -> int:
        """Its number."""
        ...

    @property
    def attempt(self) -> int:
        """Which attempt it was; 0 if it had not begun."""
        ...

    @property
    def outcome(self) -> SourceTaskOutcome:
        """How it ended."""
        ...

    @property
    def measures(self) -> TaskMeasures:
        """What it has measured."""
        ...


class RunningSourceGeneration(RunningJob, Protocol):
    """The job of a source's generation."""

    def results(self) -> Sequence[SourceResult]:
        """What its tasks reported. Raises ConnectException when the job itself failed."""
        ...


class SourceSupervisor:
    """Runs one generation to its end.

    Args:
        store: where its tasks write their progress.
        connector: the connector's name.
        generations: the driver's hold on it.
        signal: asks to close.
        graceful: seconds the tasks have for closing.
        must_close: why the generation shall close, as far as it shall, given how far its tasks are. Asked
            every second or so; must not block.
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
        must_close: Callable[[Progress], ClosingReason | None],
        on_closing: Callable[[ClosingReason], None],
        clock: WallClock,
    ) -> None:
        self._store = store
        self._connector = connector
        self._generations = generations
        self._signal = signal
        self._graceful = graceful
        self._must_close = must_close
        self._on_closing = on_closing
        self._clock = clock
        self.away: RetriableException | None = None
        """What was away when the job failed, and comes back by itself: nobody has failed then."""
        self._hung: set[int] = set()
        self.measures: Mapping[int, TaskMeasures] = {}
        """What the tasks have measured, by their numbers, once the generation has ended."""

    def run(self, running: RunningSourceGeneration, plan: GenerationPlan) -> list[SourceTaskOutcome]:
        """Wait for the end.

        Returns:
            How each task ended, by number. One that reported nothing was cancelled, failed with the
            job, or never began.

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
        """
        watch = GenerationWatch(
            self._store,
            self._connector,
            self._generations,
            self._signal,
            graceful=self._graceful,
            look=lambda: self._must_close(_of_source(self._rows(plan))),
            on_closing=self._on_closing,
            clock=self._clock,
        )
        is_cancelled = watch.run(running, plan)
        results: Sequence[SourceResult] = ()
        failure: Failure | None = None
        try:
            results = running.results()
        except ConfigException:
            raise  # no attempt would do any better
        except RetriableException as error:
            self.away = error
        except ConnectException as error:
            if not is_cancelled:
                log.warning("generation %d: %s", plan.generation, error, exc_info=True)
                failure = Failure.of(error, shared=True)
        rows = self._rows(plan)
        self.measures = {task: row.measures for task, row in rows.items()}
        self.measures |= {result.task: result.measures for result in results if result.attempt}
        reported = {result.task: result.outcome for result in results}
        return [
            reported.get(task) or _unheard(rows.get(task), failure, is_cancelled=is_cancelled)
            for task in range(len(plan.tasks))
        ]

    def _rows(self, plan: GenerationPlan) -> dict[int, TaskProgress]:
        """What the generation's tasks have reported so far; where one of them hangs is logged."""
        rows = task_progress(self._store, self._connector, len(plan.tasks))
        found = {task: row for task, row in rows.items() if row.generation == plan.generation}
        for task, row in found.items():
            if row.hangs is not None and task not in self._hung:
                self._hung.add(task)
                log.error("%s", row.hangs)
        return found


def _of_source(rows: Mapping[int, TaskProgress]) -> Progress:
    return {task: row.source for task, row in rows.items() if row.source is not None}


def _unheard(row: TaskProgress | None, failure: Failure | None, *, is_cancelled: bool) -> SourceTaskOutcome:
    """Of a task that reported nothing: what is known from its progress, and what became of the job."""
    known = row.source if row is not None and row.source is not None else SourceProgress(state="")
    if known.failure is not None:
        failure = Failure(ConnectException.__name__, known.failure, known.trace or known.failure)
    has_ended = known.state == SourceTaskState.STOPPED and row is not None and row.hangs is None
    if failure is not None:
        end = End.FAILED
    elif not is_cancelled:
        end = End.ABANDONED
    else:
        end = End.STOPPED if has_ended else End.CANCELLED  # what it reported was lost with the job
    return SourceTaskOutcome(end, known.records, known.transactions, failure)
