"""A source's task on an executor runs the author's code until it is stopped, and reports."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from sinksdk.engine.clock import Threads, WallClock
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.errors import FencedException
from sinksdk.model.outcome import End, SourceTaskOutcome
from sinksdk.store import Store
from sinksdk.support.threads import SystemThreads, start_thread
from sinksdk.worker.attempts import Attempt, prepared_process, run_owned
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.progress import SourceProgressWriter
from sinksdk.worker.task_result import SourceTaskResult, peak_memory
from sinksdk.worker.watches import SourceTaskWatch, WatchedSourceTask, watching

log = logging.getLogger(__name__)

_REPORT_AGAIN: Final = 1.0  # seconds
_PARENT_POLL: Final = 1.0  # seconds


def run_source_task(spec: GenerationSpec, task: int) -> SourceTaskResult:
    """Run a source's task; Spark runs it again if the store fails.

    Raises:
        FencedException: another attempt or a newer generation owns it.
    """
    end_with_parent()
    with prepared_process(spec, task) as store:
        return run_source_attempt(spec, store, task)


@functools.cache
def end_with_parent() -> None:
    """End this process within a second after its parent, as a crash would."""
    # Spark ends its Python workers through their daemon; if that was killed, nothing ends them. A sink's
    # task then finds the end of its input, but a source's task would write on until it is fenced. A Spark
    # that still runs takes this for a crash, and runs the task again.
    start_thread(partial(_watch_parent, os.getppid()), "parent-watch")


def _watch_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_PARENT_POLL)
    log.warning(
        "the parent process %d has ended: this worker process ends too, as Spark would have ended it", parent
    )
    os._exit(1)


def run_source_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    *,
    clock: WallClock | None = None,
    threads: Callable[[str], Threads] = SystemThreads,
) -> SourceTaskResult:
    nothing = SourceTaskResult(task, 0, SourceTaskOutcome(End.ABANDONED))
    return run_owned(spec, store, task, lambda attempt: _run(attempt, threads), nothing=nothing, clock=clock)


def _run(attempt: Attempt, threads: Callable[[str], Threads]) -> SourceTaskResult:
    result = _run_task(attempt, threads(str(attempt.name)))
    outcome = result.outcome
    if outcome.end is End.FENCED and outcome.failure is not None:
        log.warning(
            "the task was fenced; its open transaction is never committed: %s", outcome.failure.message
        )
    if outcome.end in (End.FENCED, End.ABANDONED) and not attempt.owns_task():
        raise FencedException(f"{attempt.name}: another attempt or generation owns the task")
    return result


def _run_task(attempt: Attempt, threads: Threads) -> SourceTaskResult:
    progress, clock = SourceProgressWriter(attempt), attempt.clock
    known = None
    try:
        worker, watch = _worker(attempt, threads, progress)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - the author's class may fail anyhow
        result = SourceTaskResult.not_created(attempt.task, attempt.number, error, clock.time())
    else:
        with watching(watch, threads):
            outcome = worker.run()
        if watch.hang is not None:  # the task was reported as hanging, and so as failed
            outcome = replace(outcome, end=End.FAILED, failure=watch.hang)
        measures, known = worker.measures(clock.time()), worker.known
        result = SourceTaskResult(attempt.task, attempt.number, outcome, peak_memory(), measures)
    # The other tasks and the job continue, so the driver must learn of a failure now. Once the generation
    # ends, the job's result reports the failure.
    while not progress.write_last(result.outcome, result.measures, known) and result.outcome.failure:
        if not attempt.may_run():
            break
        clock.sleep(_REPORT_AGAIN)
    return result


def _worker(
    attempt: Attempt, threads: Threads, progress: SourceProgressWriter
) -> tuple[WorkerSourceTask, SourceTaskWatch]:
    connector, target = attempt.source_class(), attempt.spec.target
    assert target is not None  # noqa: S101 - a source's generation has one
    config = connector.config_class.parse(attempt.raw)
    task = WatchedSourceTask(connector.task_class(), attempt.clock, config.task_hang_timeout_ms / 1000)
    worker = WorkerSourceTask(
        task,
        attempt.name,
        config,
        writer=target.writer(config, attempt.name),
        offsets=target.offsets(config),
        clock=attempt.clock,
        threads=threads,
        raw_config=attempt.raw,
        options=SourceOptions.of(config),
        may_run=attempt.may_run,
    )
    watch = SourceTaskWatch(
        attempt,
        worker,
        task,
        progress,
        interval=attempt.closing_poll(config.closing_poll_ms),
        start_call=threads.once,
    )
    return worker, watch
