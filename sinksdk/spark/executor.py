"""A sink's task on an executor: passes its reader's batches to the author's code, and reports."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from functools import cache
from typing import Final

from sinksdk.config import CONSUMER_OVERRIDES, ConnectorConfig
from sinksdk.engine import EngineOptions, WorkerSinkTask
from sinksdk.engine.clock import WallClock
from sinksdk.engine.worker import AssignedRange, SinkTaskRun
from sinksdk.spark.attempts import Attempt, prepare_process, run_owned
from sinksdk.spark.batches import Read, reading
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.outside import open_dead_letters, schema_registry, vouch_for
from sinksdk.spark.progress import ProgressWriter
from sinksdk.spark.task_result import TaskResult, peak_memory
from sinksdk.spark.watches import ClosingWatch, HangWatch, Watch, watch_in_thread
from sinksdk.store import Store

_PATIENCE: Final = 5.0
"""Maximum seconds that a task waits in place for a retry; it takes longer pauses between batches."""


def run_task(spec: GenerationSpec, task: int) -> TaskResult:
    """Run a task of a sink.

    Raises:
        FencedException: another attempt or a newer generation owns it.
        Exception: store or source failed; Spark runs the task again.
    """
    result = run_attempt(spec, prepare_process(spec), task, reading(spec, task))
    _freeze_garbage()
    return result


@cache
def _freeze_garbage() -> None:
    """Once per process: exclude the objects of the first task from garbage collection.

    pyspark's worker collects after each task; modules, clients and connections are no garbage.
    """
    gc.collect()
    gc.freeze()


def run_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    read: Read,
    *,
    clock: WallClock | None = None,
    watch: Watch = watch_in_thread,
) -> TaskResult:
    """Run one attempt at a task: take its record over, work, report. Raises as :func:`run_owned`."""
    return run_owned(
        spec,
        store,
        task,
        lambda attempt: _run(attempt, read, watch),
        nothing=TaskResult(task, 0, []),
        clock=clock,
    )


def _run(attempt: Attempt, read: Read, watch: Watch) -> TaskResult:
    clock, ahead = attempt.clock, attempt.ahead()
    assigned = [
        AssignedRange(
            planned.topic_partition,
            planned.offsets,
            planned.due,
            planned.records,
            planned.retry.moved(-ahead) if planned.retry else None,
        )
        for planned in attempt.plan.ranges
    ]
    with ExitStack() as stack:
        try:
            worker, config = _worker(attempt, stack)
        except Exception as error:  # noqa: BLE001 - the author's class and configuration may fail anyhow
            starts = {item.partition: item.offsets.start for item in assigned}
            return TaskResult.unmade(attempt.task, attempt.number, starts, error)
        progress = ProgressWriter(attempt, worker)
        closing_watch = ClosingWatch(attempt.store, attempt.spec, clock)
        label = f"{attempt.name}, generation {attempt.spec.generation}"
        with (
            watch(closing_watch, attempt.closing_poll(config.closing_poll_ms)) as closing,
            HangWatch(label, config.task_hang_timeout_ms / 1000, clock, progress.report_hang) as hang,
            read(
                {item.partition: item.offsets for item in assigned}, config.overrides(CONSUMER_OVERRIDES)
            ) as batches,
        ):
            outcomes = SinkTaskRun(
                worker,
                assigned,
                batches,
                closing=hang.alive(closing),
                clock=clock,
                on_progress=progress.write_if_due,
            ).run()
        progress.write_last()
        return TaskResult(
            attempt.task,
            attempt.number if outcomes else 0,
            [outcome.moved(ahead) for outcome in outcomes],
            peak_memory(),
            worker.measures(clock.time()),
        )


def _worker(attempt: Attempt, stack: ExitStack) -> tuple[WorkerSinkTask, ConnectorConfig]:
    connector = attempt.sink_class()
    config = connector.config_class.parse(attempt.raw)
    worker = WorkerSinkTask(
        connector.task_class(),
        attempt.name,
        config,
        commits=attempt.taken.ledger,
        clock=attempt.clock,
        generation=attempt.spec.generation,
        raw_config=attempt.raw,
        options=EngineOptions.of(config, schema_registry, patience=_PATIENCE),
        dead_letters=stack.enter_context(open_dead_letters(config, attempt.spec.kafka)),
        check_topics=vouch_for(config, attempt.spec.source, attempt.taken.plan.topic_ids),
    )
    return worker, config
