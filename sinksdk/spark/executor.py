"""One task on an executor: takes its record over, runs the author's code, reports.

An attempt that finds itself fenced must not end well: Spark would take it for the winner and kill the
copy that owns the task. It waits until it is killed or its generation is over, and then fails.
"""

from __future__ import annotations

import logging
import random
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from sinksdk.connector import SinkConnector
from sinksdk.engine import EngineOptions, SystemClock, TaskName, WorkerSinkTask
from sinksdk.engine.clock import Clock
from sinksdk.engine.outcome import Failure, PartitionOutcome
from sinksdk.engine.worker import AssignedRange, ClosingRequest, SinkTaskRun
from sinksdk.errors import ConnectException, FencedException
from sinksdk.logs import WARNINGS, LogSettings, Outage, configure_logging, logging_about, same_subject
from sinksdk.measures import TaskMeasures
from sinksdk.plugins import connector_class
from sinksdk.records import TopicPartition
from sinksdk.spark.batches import ReadAhead, by_partition, task_number
from sinksdk.spark.hanging import HangWatch
from sinksdk.spark.outside import open_dead_letters, schema_registry, vouch_for
from sinksdk.spark.task_result import TaskResult, to_row
from sinksdk.store import Store, TakenOver, current_plan, open_store, table, take_over
from sinksdk.store.base import Conflict
from sinksdk.store.records import (
    PartitionProgress,
    TaskPlan,
    TaskProgress,
    TaskRecord,
    progress_key,
    task_key,
)

if TYPE_CHECKING:
    from sinksdk.sources.kafka.client import KafkaClient

log = logging.getLogger(__name__)

_PROGRESS_INTERVAL = 2.0  # seconds
_FENCED_POLL = 1.0  # seconds
_OWNER_SILENCE = 600.0  # seconds: longer than any call of an author's code should take


@dataclass(frozen=True, slots=True)
class GenerationSpec:
    """What every task of a generation must know; travels to the executors and holds no secret.

    Args:
        store_url: the store, references unresolved.
        store_id: its id: an executor that reaches another store must not write to it.
        connector: the connector's name.
        generation: the generation's number.
        python_path: folders to import the connector from, besides the installed packages.
        logs: how they log.
        kafka: the cluster that takes dead letters, if the connector has any.
        source: the Kafka cluster that records come from, if they come from one.
    """

    store_url: str
    store_id: str
    connector: str
    generation: int
    python_path: tuple[str, ...] = ()
    logs: LogSettings = WARNINGS
    kafka: KafkaClient | None = None
    source: KafkaClient | None = None


def run_task(spec: GenerationSpec, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    """Run the task whose input this is.

    Raises:
        FencedException: another attempt or a newer generation owns it.
        Exception: store or input failed; Spark runs the task again.
    """
    sys.path[:0] = [folder for folder in spec.python_path if folder not in sys.path]  # as in the driver
    configure_logging(spec.logs)
    ahead = ReadAhead(batches)
    try:
        stream = iter(ahead)
        first = next(batch for batch in stream if batch is not None)
        store = open_store(spec.store_url, expected_id=spec.store_id)
        return run_attempt(spec, store, task_number(first), _chain(first, stream))
    finally:
        ahead.stop()


def run_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    batches: Iterator[pa.RecordBatch | None],
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
        batches: its input, control row included; None whenever nothing came for a while.
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
            batches,
            clock=clock or SystemClock(),
            epoch=epoch,
            watch=watch or _watch_in_thread,
        )


def _run_attempt(
    spec: GenerationSpec,
    store: Store,
    task: int,
    batches: Iterator[pa.RecordBatch | None],
    *,
    clock: Clock,
    epoch: Callable[[], float],
    watch: Watch,
) -> TaskResult:
    if _leaves_closing_alone(store, spec, task, clock):
        return TaskResult(task, 0, [], 0)
    taken = take_over(store, spec.connector, spec.generation, task)
    if taken is None:
        raise _fenced(store, spec, task, clock)
    try:
        attempt = _Attempt(spec, store, task, taken, clock=clock, epoch=epoch, watch=watch)
        return attempt.run(batches)
    except FencedException as error:
        raise _fenced(store, spec, task, clock) from error


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

    def run(self, batches: Iterator[pa.RecordBatch | None]) -> TaskResult:
        with ExitStack() as stack:
            return self._run(batches, stack)

    def _run(self, batches: Iterator[pa.RecordBatch | None], stack: ExitStack) -> TaskResult:
        partitions = [planned.topic_partition for planned in self._plan.ranges]
        assigned = [AssignedRange(p.topic_partition, p.offsets, p.due) for p in self._plan.ranges]
        try:
            worker, poll = self._worker(stack)
        except FencedException:
            raise
        except Exception as error:  # noqa: BLE001 - the author's class and configuration may fail anyhow
            failure = Failure.of(error)
            return self._result(
                [PartitionOutcome.unread(item.partition, item.offsets.start, failure) for item in assigned]
            )
        progress = _ProgressWriter(
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
        ):
            outcomes = SinkTaskRun(
                worker,
                assigned,
                by_partition(batches, partitions),
                closing=hang.alive(closing),
                clock=self._clock,
                on_progress=progress.write_if_due,
            ).run()
        progress.write_last()
        return self._result(list(outcomes), worker.measures(self._epoch()))

    def _worker(self, stack: ExitStack) -> tuple[WorkerSinkTask, float]:
        raw = {**self._taken.plan.config, **self._plan.config}
        connector: type[SinkConnector] = connector_class(raw.get("connector.class", ""))
        config = connector.config_class.parse(raw)
        worker = WorkerSinkTask(
            connector.task_class(),
            TaskName(self._spec.connector, self._task),
            config,
            commits=self._taken.ledger,
            clock=self._clock,
            generation=self._spec.generation,
            raw_config=raw,
            options=EngineOptions.of(config, schema_registry),
            dead_letters=stack.enter_context(open_dead_letters(config, self._spec.kafka)),
            vouch=vouch_for(config, self._spec.source, self._taken.plan.topic_ids),
        )
        self._hang_timeout = config.task_hang_timeout_ms / 1000
        poll = config.closing_poll_ms
        return worker, self._store.closing_poll if poll is None else poll / 1000

    def _result(self, outcomes: list[PartitionOutcome], measures: TaskMeasures | None = None) -> TaskResult:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        return TaskResult(
            self._task,
            self._taken.ledger.attempt if outcomes else 0,
            outcomes,
            peak,
            measures or TaskMeasures(),
        )


class ClosingWatch:
    """Knows whether a generation shall close or is over, as of the last look.

    Args:
        store: where the plan is.
        spec: whose plan.
        clock: the task's.
        epoch: seconds since the epoch: the driver, which asks, may have another clock.
    """

    def __init__(
        self, store: Store, spec: GenerationSpec, clock: Clock, epoch: Callable[[], float] = time.time
    ) -> None:
        self._store = store
        self._spec = spec
        self._clock = clock
        self._epoch = epoch
        self._request: ClosingRequest | None = None
        self._is_over = False
        self._outage = Outage(log)

    def request(self) -> ClosingRequest | None:
        """The request to close, once there is one. Raises FencedException when the generation is over."""
        if self._is_over:
            raise FencedException(f"generation {self._spec.generation} of {self._spec.connector} is over")
        return self._request

    def look(self) -> None:
        """Read the plan. Raises StoreUnavailable."""
        plan = current_plan(self._store, self._spec.connector, self._spec.generation)
        if plan is None:
            self._is_over = True
        elif plan.closing is not None:
            self._request = ClosingRequest(
                plan.closing.reason, plan.closing.timeout, self._on_our_clock(plan.closing.asked)
            )

    def _on_our_clock(self, asked: float | None) -> float | None:
        return None if asked is None else self._clock.now() - max(self._epoch() - asked, 0.0)

    def look_again(self) -> None:
        """As :meth:`look`; a store that does not answer is asked the next time."""
        try:
            self.look()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("whether to close cannot be seen, it is looked again: %s", error)


Watch = Callable[[ClosingWatch, float], AbstractContextManager[Callable[[], ClosingRequest | None]]]
"""Lets a watch look every so many seconds while the block runs; gives what asks it."""


def look_now_and_then(watch: ClosingWatch, interval: float, wait: Callable[[float], bool]) -> None:
    """Look until the wait is over, at the interval give or take a fifth: many tasks begin at one moment."""
    while not wait(interval * random.uniform(0.8, 1.2)):  # noqa: S311 - no secret
        watch.look_again()


@contextmanager
def _watch_in_thread(watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
    """Look in a thread of its own: a store that is slow to answer does not hold the task up."""
    watch.look()
    stopped = threading.Event()
    look = same_subject(lambda: look_now_and_then(watch, interval, stopped.wait))
    thread = threading.Thread(target=look, name="closing-watch", daemon=True)
    thread.start()
    try:
        yield watch.request
    finally:
        stopped.set()
        thread.join()


class _ProgressWriter:
    """Tells the driver how far a task is, at most every two seconds. Informs only: failures are ignored."""

    def __init__(
        self,
        store: Store,
        spec: GenerationSpec,
        task: int,
        attempt: int,
        worker: WorkerSinkTask,
        *,
        clock: Clock,
        epoch: Callable[[], float],
    ) -> None:
        self._store = store
        self._key = progress_key(spec.connector, task)
        self._generation = spec.generation
        self._attempt = attempt
        self._worker = worker
        self._clock = clock
        self._epoch = epoch
        self._next = clock.now()
        self._version: str | None = None
        self._hangs: str | None = None
        self._last: tuple[float, dict[TopicPartition, int]] = clock.now(), {}

    def write_if_due(self) -> None:
        """Write the positions if the last time is long enough ago."""
        now = self._clock.now()
        if now < self._next:
            return
        self._next = now + _PROGRESS_INTERVAL
        self.write()

    def tell_of_hang(self, where: str) -> None:
        """Let the driver know; from another thread: the task's own hangs."""
        self._hangs = where
        self.write()

    def write(self) -> None:
        """Write the positions now."""
        self._write(self._progress())

    def write_last(self) -> None:
        """Write the positions now that the task has ended: nothing is read any more."""
        progress = self._progress()
        ended = tuple(row.model_copy(update={"rate": 0.0}) for row in progress.partitions)
        self._write(progress.model_copy(update={"partitions": ended}))

    def _write(self, progress: TaskProgress) -> None:
        try:
            self._version = table.write(self._store, self._key, progress, self._version).version
        except Conflict:
            self._write_over(progress)
        except ConnectException as error:
            log.info("progress was not written: %s", error)

    def _write_over(self, progress: TaskProgress) -> None:
        """Write over what an earlier attempt or generation has left; a later one's stays."""
        try:
            found = table.read(self._store, self._key, TaskProgress)
            if found is None or self._is_earlier(found.value):
                version = found.version if found else None
                self._version = table.write(self._store, self._key, progress, version).version
        except ConnectException as error:
            log.info("progress was not written: %s", error)

    def _is_earlier(self, other: TaskProgress) -> bool:
        return (other.generation, other.attempt) <= (self._generation, self._attempt)

    def _progress(self) -> TaskProgress:
        outcomes = self._worker.outcomes()
        before, counted = self._last
        now = self._clock.now()
        self._last = now, {outcome.partition: outcome.records for outcome in outcomes}
        return TaskProgress(
            generation=self._generation,
            attempt=self._attempt,
            partitions=tuple(
                PartitionProgress(
                    topic=outcome.partition.topic,
                    partition=outcome.partition.partition,
                    position=outcome.delivered,
                    committed=outcome.committed,
                    records=outcome.records,
                    counts=dict(outcome.counts),
                    failure=outcome.failure.message if outcome.failure else None,
                    rate=(outcome.records - counted.get(outcome.partition, 0)) / max(now - before, 1.0),
                    tail=outcome.tail,
                )
                for outcome in outcomes
            ),
            hangs=self._hangs,
            measures=self._worker.measures(self._epoch()),
        )


def _fenced(store: Store, spec: GenerationSpec, task: int, clock: Clock) -> FencedException:
    """Wait until there is something to raise: this attempt is needed no more, or its owner is dead.

    Spark kills this attempt once the owner has reported. An owner that died with its executor reports
    nothing, and Spark may start no third attempt while this one runs: so the owner's signs of life are
    watched.
    """
    log.info(
        "connector %s, task %d, generation %d: another attempt owns this task; waiting for the end",
        spec.connector,
        task,
        spec.generation,
    )
    signs, since = _signs_of_life(store, spec, task), clock.now()
    while (plan := current_plan(store, spec.connector, spec.generation)) is not None and not plan.closing:
        clock.sleep(_FENCED_POLL)
        now = _signs_of_life(store, spec, task)
        if now != signs:
            signs, since = now, clock.now()
        if clock.now() - since > _OWNER_SILENCE:
            return FencedException(
                f"connector {spec.connector}, task {task}: the attempt that owns it has given no sign of "
                f"life for {_OWNER_SILENCE:g} s; a new one may start"
            )
    why = "is closing" if plan is not None else "is over; a newer one has taken over"
    return FencedException(f"connector {spec.connector}, task {task}: generation {spec.generation} {why}")


def _signs_of_life(store: Store, spec: GenerationSpec, task: int) -> tuple[str | None, ...]:
    """Versions of what a task's owner writes while it lives."""
    keys = (task_key(spec.connector, task), progress_key(spec.connector, task))
    return tuple(found.version if found else None for found in map(store.get, keys))


def _leaves_closing_alone(store: Store, spec: GenerationSpec, task: int, clock: Clock) -> bool:
    """Whether another attempt is just closing; if so, wait for as long as it has for that.

    Taking its record over would throw away what it is about to commit. Spark kills this copy once the
    other one has reported.
    """
    plan = current_plan(store, spec.connector, spec.generation)
    if plan is None or plan.closing is None:
        return False
    record = table.read(store, task_key(spec.connector, task), TaskRecord)
    if record is None or record.value.generation != spec.generation or not record.value.attempt:
        return False
    give_up = clock.now() + plan.closing.timeout
    while clock.now() < give_up and current_plan(store, spec.connector, spec.generation) is not None:
        clock.sleep(_FENCED_POLL)
    return True


def _chain(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch | None]) -> Iterator[pa.RecordBatch | None]:
    yield first
    yield from rest


def result_batches(spec: GenerationSpec, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` runs: a task's input to its one row of result."""
    row = to_row(run_task(spec, batches))
    yield pa.RecordBatch.from_arrays([pa.array([row], pa.string())], names=["result"])
