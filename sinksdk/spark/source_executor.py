"""A source's task on an executor: takes its record over, runs the author's code, reports."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace

from sinksdk.engine import SystemClock, TaskName
from sinksdk.engine.clock import Clock, Threads
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.outcome import End, Failure, SourceTaskOutcome
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.settings.plugins import source_class
from sinksdk.spark.attempts import fenced, leaves_closing_alone, opened_store, peak_memory, settle_in
from sinksdk.spark.closing_watch import ClosingWatch
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.orphans import end_with_parent
from sinksdk.spark.source_calls import WatchedSourceTask
from sinksdk.spark.source_progress import SourceProgressWriter
from sinksdk.spark.source_watch import SourceTaskWatch, watching
from sinksdk.spark.task_result import SourceTaskResult
from sinksdk.store import Store, TakenOver, asked_to_close, is_current, table, take_over
from sinksdk.store.keys import task_key
from sinksdk.store.records import TaskRecord
from sinksdk.support.logs import logging_about
from sinksdk.support.measures import ErrorCounts, TaskMeasures
from sinksdk.support.threads import SystemThreads

log = logging.getLogger(__name__)

_TELL_AGAIN = 1.0  # seconds


def run_source_task(spec: GenerationSpec, task: int) -> SourceTaskResult:
    """Run a task of a source, until it is asked to stop.

    Raises:
        FencedException: another attempt or a newer generation owns it.
        Exception: the store failed; Spark runs the task again.
    """
    settle_in(spec)
    end_with_parent()
    return run_source_attempt(spec, opened_store(spec), task)


def run_source_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    *,
    clock: Clock | None = None,
    epoch: Callable[[], float] = time.time,
    threads: Callable[[str], Threads] = SystemThreads,
) -> SourceTaskResult:
    """Run one attempt at a task: take its record over, work, report.

    Args:
        spec: what every task of the generation knows.
        store: opened.
        task: its number.
        clock: time.
        epoch: seconds since the epoch.
        threads: makes those of a task, given what they are called.

    Raises:
        FencedException: another attempt or a newer generation owns it, and this generation is over.
        Exception: the store failed; Spark runs the task again.
    """
    with logging_about(connector=spec.connector, task=task, generation=spec.generation):
        clock = clock or SystemClock()
        if leaves_closing_alone(store, spec, task, clock):
            return SourceTaskResult(task, 0, SourceTaskOutcome(End.ABANDONED))
        taken = take_over(store, spec.connector, spec.generation, task)
        if taken is None:
            raise fenced(store, spec, task, clock)
        attempt = _SourceAttempt(spec, store, task, taken, clock=clock, epoch=epoch, threads=threads)
        outcome, measures = attempt.run()
        if outcome.end is End.FENCED and outcome.failure is not None:
            log.warning("the task was fenced; what it had open is never seen: %s", outcome.failure.message)
        if outcome.end in (End.FENCED, End.ABANDONED) and not attempt.owns_task():
            raise fenced(store, spec, task, clock)
        return SourceTaskResult(task, taken.ledger.attempt, outcome, peak_memory(), measures)


class _SourceAttempt:
    """One attempt at one task that has taken its record over."""

    def __init__(
        self,
        spec: GenerationSpec,
        store: Store,
        task: int,
        taken: TakenOver,
        *,
        clock: Clock,
        epoch: Callable[[], float],
        threads: Callable[[str], Threads],
    ) -> None:
        self._spec = spec
        self._store = store
        self._task = task
        self._taken = taken
        self._clock = clock
        self._epoch = epoch
        self._name = TaskName(spec.connector, task)
        self._threads = threads(str(self._name))

    def owns_task(self) -> bool:
        """Whether nobody else has taken the task over: another attempt, a newer generation."""
        row = table.read(self._store, task_key(self._spec.connector, self._task), TaskRecord)
        ours = self._spec.generation, self._taken.ledger.attempt
        return row is not None and (row.value.generation, row.value.attempt) == ours

    def run(self) -> tuple[SourceTaskOutcome, TaskMeasures]:
        """How it ended, and what it has measured."""
        progress = SourceProgressWriter(
            self._store,
            self._spec,
            self._task,
            self._taken.ledger.attempt,
            clock=self._clock,
            epoch=self._epoch,
        )
        try:
            worker, watch = self._made(progress)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's class may fail anyhow
            outcome = SourceTaskOutcome(End.FAILED, failure=Failure.of(error))
            measures = TaskMeasures(errors=ErrorCounts(record_errors=1, last=self._epoch()))
            self._tell(outcome, lambda: progress.write_last(outcome, measures))
        else:
            with watching(watch, self._threads):
                outcome = worker.run()
            if watch.hang is not None:  # it was told to have failed, whatever came of it afterwards
                outcome = replace(outcome, end=End.FAILED, failure=watch.hang)
            measures = worker.measures(self._epoch())
            self._tell(outcome, lambda: progress.write_last(outcome, measures, worker.known))
        return outcome, measures

    def _made(self, progress: SourceProgressWriter) -> tuple[WorkerSourceTask, SourceTaskWatch]:
        """Who does it, and who looks after it."""
        raw = {**self._taken.plan.config, **self._taken.plan.tasks[self._task].config}
        connector = source_class(raw.get("connector.class", ""))
        assert self._spec.target is not None  # noqa: S101 - a source's generation has one
        config = connector.config_class.parse(raw)
        task = WatchedSourceTask(connector.task_class(), self._clock)
        worker = WorkerSourceTask(
            task,
            self._name,
            config,
            writer=self._spec.target.writer(config, self._name),
            offsets=self._spec.target.offsets(config),
            clock=self._clock,
            threads=self._threads,
            raw_config=raw,
            options=SourceOptions.of(config),
            may_run=self._may_run,
        )
        poll = config.closing_poll_ms
        watch = SourceTaskWatch(
            worker,
            task,
            ClosingWatch(self._store, self._spec, self._clock, self._epoch),
            progress,
            label=str(self._name),
            hang_timeout=config.task_hang_timeout_ms / 1000,
            interval=self._store.closing_poll if poll is None else poll / 1000,
            clock=self._clock,
            beside=self._threads.beside,
        )
        return worker, watch

    def _may_run(self) -> bool:
        """Whether this generation is the newest, this attempt the task's owner, and nobody wants an end."""
        which = self._spec.connector, self._spec.generation
        return (
            is_current(self._store, *which)
            and asked_to_close(self._store, *which) is None
            and self.owns_task()
        )

    def _tell(self, outcome: SourceTaskOutcome, write: Callable[[], bool]) -> None:
        """Say that the task has ended. A failure must be heard of: others run on, and the job with them."""
        while not write() and outcome.failure is not None:
            if not self._may_run():
                return  # the job ends, and with it comes the result
            self._clock.sleep(_TELL_AGAIN)
