"""A sink's task on an executor: takes its record over, runs the author's code, reports."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Final

from sinksdk.config import CONSUMER_OVERRIDES
from sinksdk.engine import EngineOptions, SystemClock, TaskName, WorkerSinkTask
from sinksdk.engine.clock import Clock
from sinksdk.engine.outcome import Failure, PartitionOutcome
from sinksdk.engine.worker import AssignedRange, SinkTaskRun, Unread
from sinksdk.errors import FencedException
from sinksdk.records import OffsetRange, SinkRecords, TopicPartition
from sinksdk.settings.plugins import sink_class
from sinksdk.spark.attempts import fenced, leaves_closing_alone, opened_store, peak_memory, settle_in
from sinksdk.spark.batches import ReadAhead
from sinksdk.spark.closing_watch import ClosingWatch, Watch, watch_in_thread
from sinksdk.spark.generation_spec import GenerationSpec, unpacked
from sinksdk.spark.hanging import HangWatch
from sinksdk.spark.outside import open_dead_letters, schema_registry, vouch_for
from sinksdk.spark.progress import ProgressWriter
from sinksdk.spark.task_result import TaskResult
from sinksdk.store import Store, TakenOver, take_over
from sinksdk.store.records import PlannedRange, TaskPlan
from sinksdk.support.logs import logging_about
from sinksdk.support.measures import TaskMeasures

log = logging.getLogger(__name__)

Read = Callable[
    [Mapping[TopicPartition, OffsetRange], Mapping[str, str]],
    AbstractContextManager[Iterable[SinkRecords | Unread | None]],
]
"""Gives what a :class:`~sinksdk.topics.base.Reader` reads of ranges while the block runs.

Its second argument is what the connector overrides of the reading client.
"""

# Seconds that a task waits for another attempt on its place; longer ones it waits without.
_PATIENCE: Final = 5.0


def run_task(spec: GenerationSpec, task: int) -> TaskResult:
    """Run a task of a sink.

    Raises:
        FencedException: another attempt or a newer generation owns it.
        Exception: store or source failed; Spark runs the task again.
    """
    settle_in(spec)
    store, reader = opened_store(spec), unpacked(spec.readers[task])

    @contextmanager
    def read(
        ranges: Mapping[TopicPartition, OffsetRange], overrides: Mapping[str, str]
    ) -> Iterator[Iterable[SinkRecords | Unread | None]]:
        ahead = ReadAhead(reader.read(ranges, spec.columns, overrides))
        try:
            yield ahead
        finally:
            ahead.stop()

    result = run_attempt(spec, store, task, read)
    pass_over_what_stays()
    return result


@cache
def pass_over_what_stays() -> None:
    """Once in a process: from now on nobody looks for garbage in what its first task has left behind.

    pyspark's worker looks after each task. In modules, clients and connections there is none.
    """
    gc.collect()
    gc.freeze()


def run_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    read: Read,
    *,
    clock: Clock | None = None,
    epoch: Callable[[], float] = time.time,
    watch: Watch | None = None,
) -> TaskResult:
    """Run one attempt at a task: take its record over, work, report.

    Args:
        spec: what every task of the generation knows.
        store: opened.
        task: its number.
        read: gives the records of its ranges.
        clock: time.
        epoch: seconds since the epoch.
        watch: looks whether to close; by default in a thread of its own.

    Raises:
        FencedException: another attempt or a newer generation owns it, and this generation is over.
        Exception: store or input failed; Spark runs the task again.
    """
    with logging_about(connector=spec.connector, task=task, generation=spec.generation):
        return _run_attempt(
            spec,
            store,
            task,
            read,
            clock=clock or SystemClock(),
            epoch=epoch,
            watch=watch or watch_in_thread,
        )


def _run_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    read: Read,
    *,
    clock: Clock,
    epoch: Callable[[], float],
    watch: Watch,
) -> TaskResult:
    if leaves_closing_alone(store, spec, task, clock):
        return TaskResult(task, 0, [], 0)
    taken = take_over(store, spec.connector, spec.generation, task)
    if taken is None:
        raise fenced(store, spec, task, clock)
    try:
        attempt = _Attempt(spec, store, task, taken, clock=clock, epoch=epoch, watch=watch)
        return attempt.run(read)
    except FencedException as error:
        raise fenced(store, spec, task, clock) from error


class _Attempt:
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
        watch: Watch,
    ) -> None:
        self._spec = spec
        self._store = store
        self._task = task
        self._taken = taken
        self._clock = clock
        self._epoch = epoch
        self._watch = watch
        self._plan: TaskPlan = taken.plan.tasks[task]
        self._hang_timeout = 0.0
        self._overrides: Mapping[str, str] = {}

    def run(self, read: Read) -> TaskResult:
        with ExitStack() as stack:
            return self._run(read, stack)

    def _run(self, read: Read, stack: ExitStack) -> TaskResult:
        ahead = self._epoch() - self._clock.now()
        assigned = [_assigned(planned, ahead) for planned in self._plan.ranges]
        try:
            worker, poll = self._worker(stack)
        except FencedException:
            raise
        except Exception as error:  # noqa: BLE001 - the author's class and configuration may fail anyhow
            failure = Failure.of(error)
            return self._result(
                [PartitionOutcome.unread(item.partition, item.offsets.start, failure) for item in assigned]
            )
        progress = ProgressWriter(
            self._store,
            self._spec,
            self._task,
            self._taken.ledger.attempt,
            worker,
            clock=self._clock,
            epoch=self._epoch,
        )
        label = f"connector {self._spec.connector}, task {self._task}, generation {self._spec.generation}"
        watch = ClosingWatch(self._store, self._spec, self._clock, self._epoch)
        with (
            self._watch(watch, poll) as closing,
            HangWatch(label, self._hang_timeout, self._clock, progress.tell_of_hang) as hang,
            read({item.partition: item.offsets for item in assigned}, self._overrides) as batches,
        ):
            outcomes = SinkTaskRun(
                worker,
                assigned,
                batches,
                closing=hang.alive(closing),
                clock=self._clock,
                on_progress=progress.write_if_due,
            ).run()
        progress.write_last()
        return self._result([outcome.moved(ahead) for outcome in outcomes], worker.measures(self._epoch()))

    def _worker(self, stack: ExitStack) -> tuple[WorkerSinkTask, float]:
        raw = {**self._taken.plan.config, **self._plan.config}
        connector = sink_class(raw.get("connector.class", ""))
        config = connector.config_class.parse(raw)
        worker = WorkerSinkTask(
            connector.task_class(),
            TaskName(self._spec.connector, self._task),
            config,
            commits=self._taken.ledger,
            clock=self._clock,
            generation=self._spec.generation,
            raw_config=raw,
            options=EngineOptions.of(config, schema_registry, patience=_PATIENCE),
            dead_letters=stack.enter_context(open_dead_letters(config, self._spec.kafka)),
            check_topics=vouch_for(config, self._spec.source, self._taken.plan.topic_ids),
        )
        self._hang_timeout = config.task_hang_timeout_ms / 1000
        self._overrides = config.overrides(CONSUMER_OVERRIDES)
        poll = config.closing_poll_ms
        return worker, self._store.closing_poll if poll is None else poll / 1000

    def _result(self, outcomes: list[PartitionOutcome], measures: TaskMeasures | None = None) -> TaskResult:
        return TaskResult(
            self._task,
            self._taken.ledger.attempt if outcomes else 0,
            outcomes,
            peak_memory(),
            measures or TaskMeasures(),
        )


def _assigned(planned: PlannedRange, ahead: float) -> AssignedRange:
    """A range for the engine; ``ahead``: seconds by which the epoch's clock is ahead of the task's."""
    return AssignedRange(
        planned.topic_partition,
        planned.offsets,
        planned.due,
        planned.records,
        planned.retry.moved(-ahead) if planned.retry else None,
    )
