"""A sink's task on an executor reads ahead, passes batches to the author's code, and reports."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from functools import cache
from typing import Final

from sinksdk.config import CONSUMER_OVERRIDES, ConnectorConfig
from sinksdk.engine import EngineOptions, WallClock, WorkerSinkTask
from sinksdk.engine.task_run import SinkTaskRun, Unread
from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords
from sinksdk.store import Store
from sinksdk.support.threads import start_thread
from sinksdk.worker.attempts import Attempt, prepared_process, run_owned
from sinksdk.worker.generation_spec import GenerationSpec, unpacked
from sinksdk.worker.outside import Outside, schema_registry
from sinksdk.worker.progress import ProgressWriter
from sinksdk.worker.task_result import TaskResult, peak_memory
from sinksdk.worker.watches import ClosingWatch, HangWatch, Watch, watch_in_thread

# Seconds for which a task retries on its task slot; before a longer wait the partition ends.
_PATIENCE: Final = 5.0
_OUTSIDE: Final = Outside()
_AHEAD: Final = 2  # batches read ahead: the reader fills one while the task gets the other
_LONGEST: Final = 5.0  # seconds to wait for a reader to close
_NOTHING_FOR: Final = 0.05  # seconds without a batch until the task gets None

Batches = Iterable[SinkRecords | Unread | None]
Ranges = Mapping[TopicPartition, OffsetRange]

# The second argument has client properties that override the source's.
Read = Callable[[Ranges, Mapping[str, str]], AbstractContextManager[Batches]]


def run_task(spec: GenerationSpec, task: int) -> TaskResult:
    """Run a sink's task; Spark runs it again if the store or the source fails.

    Raises:
        FencedException: another attempt or a newer generation owns it.
    """
    with prepared_process(spec, task) as store:
        result = run_attempt(spec, store, task, reading(spec, task))
    # A store that is frozen would keep its connections open until the process ends.
    del store
    _freeze_garbage()
    return result


@cache
def _freeze_garbage() -> None:
    # pyspark's worker collects after each task, but modules, clients and connections are no garbage.
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
    outside: Outside = _OUTSIDE,
) -> TaskResult:
    return run_owned(
        spec,
        store,
        task,
        lambda attempt: _run(attempt, read, watch, outside),
        nothing=TaskResult(task, 0, []),
        clock=clock,
    )


def _run(attempt: Attempt, read: Read, watch: Watch, outside: Outside) -> TaskResult:
    clock, ahead = attempt.clock, attempt.ahead()
    with ExitStack() as stack:
        try:
            worker, config = _worker(attempt, stack, outside)
        except Exception as error:  # noqa: BLE001 - the author's class and configuration may fail anyhow
            starts = {planned.topic_partition: planned.start for planned in attempt.plan.ranges}
            return TaskResult.not_created(attempt.task, attempt.number, starts, error)
        progress = ProgressWriter(attempt, worker)
        closing_watch = ClosingWatch(attempt.store, attempt.spec, clock)
        label = f"{attempt.name}, generation {attempt.spec.generation}"
        with (
            watch(closing_watch, attempt.closing_poll(config.closing_poll_ms)) as closing,
            HangWatch(label, config.task_hang_timeout_ms / 1000, clock, progress.report_hang) as hang,
            read(
                {planned.topic_partition: planned.offsets for planned in attempt.plan.ranges},
                config.overrides(CONSUMER_OVERRIDES),
            ) as batches,
        ):
            outcomes = SinkTaskRun(
                worker,
                [planned.on_clock(-ahead) for planned in attempt.plan.ranges],
                batches,
                closing=hang.alive(closing),
                clock=clock,
                on_progress=progress.write_if_due,
            ).run()
        progress.write_last()
        return TaskResult(
            attempt.task,
            attempt.number if outcomes else 0,
            [outcome.on_clock(ahead) for outcome in outcomes],
            peak_memory(),
            worker.measures(clock.time()),
        )


def _worker(attempt: Attempt, stack: ExitStack, outside: Outside) -> tuple[WorkerSinkTask, ConnectorConfig]:
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
        dead_letters=stack.enter_context(outside.dead_letters(config, attempt.spec.dead_letters)),
        check_topics=outside.topic_id_check(config, attempt.spec.source, attempt.taken.plan.topic_ids),
    )
    return worker, config


# -- input ---------------------------------------------------------------------------------------------


def reading(spec: GenerationSpec, task: int) -> Read:
    reader = unpacked(spec.readers[task])

    def read(ranges: Ranges, overrides: Mapping[str, str]) -> AbstractContextManager[Batches]:
        return closing(ReadAhead(reader.read(ranges, spec.columns, overrides)))

    return read


class InputError(RuntimeError): ...


class ReadAhead:
    """A thread reads the next batch while the task delivers this one.

    The task sees a close request even while the source is slow.
    """

    def __init__(self, batches: Generator[SinkRecords | Unread | None]) -> None:
        self._queue: queue.Queue[SinkRecords | Unread | BaseException | None] = queue.Queue(_AHEAD)
        self._stopped = threading.Event()
        self._batches = batches
        self._thread = start_thread(self._read, "input")

    def __iter__(self) -> Iterator[SinkRecords | Unread | None]:
        """Yield batches, or None when none arrived for a while."""
        while True:
            try:
                item = self._queue.get(timeout=_NOTHING_FOR)
            except queue.Empty:
                yield None
                continue
            if item is None:
                return
            if isinstance(item, ConnectException):
                raise item
            if isinstance(item, BaseException):
                raise InputError(f"the task's input could not be read: {item!r}") from item
            yield item

    def close(self) -> None:
        self._stopped.set()
        # A reader that hangs is abandoned: everything read is committed by now.
        self._thread.join(_LONGEST)

    @property
    def is_reading(self) -> bool:
        return self._thread.is_alive()

    def _read(self) -> None:
        try:
            with closing(self._batches) as batches:
                for batch in batches:
                    if self._stopped.is_set() or (batch is not None and not self._put(batch)):
                        return
            self._put(None)
        except BaseException as error:  # noqa: BLE001 - raised in the task's thread
            self._put(error)

    def _put(self, item: SinkRecords | Unread | BaseException | None) -> bool:
        while not self._stopped.is_set():
            try:
                self._queue.put(item, timeout=_NOTHING_FOR)
            except queue.Full:
                continue
            return True
        return False
