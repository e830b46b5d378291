"""Runs a generation as a Spark job with one Spark partition per task."""

from __future__ import annotations

import logging
import time
import uuid
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Generic, TypeVar

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.spark.jvm import dead_worker, missing_module, raised, unavailable_store, unusable_program
from sinksdk.spark.task_slots import POOL, check_task_slots, has_speculation
from sinksdk.spark.transform import TransformedRecords
from sinksdk.store.records import GenerationPlan
from sinksdk.support.logs import same_subject
from sinksdk.worker.generation_spec import GenerationSpec, packed
from sinksdk.worker.sink_task import run_task
from sinksdk.worker.source_task import run_source_task
from sinksdk.worker.task_result import R, SourceTaskResult, TaskResult, from_rows, to_row

if TYPE_CHECKING:
    from pyspark import SparkContext

    from sinksdk.topics import Source

log = logging.getLogger(__name__)

_CANCEL_INTERVAL = 0.5  # seconds between cancellations of a job that continues


T = TypeVar("T")

Job = Callable[[], Iterable[str]]


class SparkGeneration(Generic[R]):
    def __init__(
        self,
        spark: SparkContext,
        spec: GenerationSpec,
        job: Job,
        kind: type[R],
        *,
        transformed: TransformedRecords | None = None,
    ) -> None:
        self._spark = spark
        self._transformed = transformed
        self._tag = f"sinksdk-{uuid.uuid4().hex}"
        self._is_cancelled = False
        self._future: Future[list[R]] = Future()
        run = same_subject(lambda: self._run(spec, lambda: from_rows(kind, job())))
        self._thread = Thread(target=run, name=f"generation-{spec.generation}", daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            self._thread.join(min(left, _CANCEL_INTERVAL))
            if self._is_cancelled:
                self._cancel_job()  # repeated: while Spark plans, there is no job to cancel
        return not self._thread.is_alive()

    def results(self) -> list[R]:
        try:
            return self._future.result(timeout=0)
        except Exception as error:
            if not self._is_cancelled and (module := missing_module(_text(error))) is not None:
                python = self._spark.pythonExec
                raise ConfigException(
                    f"the executors' Python, {python}, has no module '{module}': install sinksdk, the "
                    f"connector and their dependencies there, in the driver's versions, or set another "
                    f"Python with PYSPARK_PYTHON"
                ) from error
            if not self._is_cancelled and (found := unusable_program(error)) is not None:
                program, why = found
                raise ConfigException(
                    f"the executors cannot run {program}: {why}; set their Python with PYSPARK_PYTHON, or "
                    f"send one with spark.archives"
                ) from error
            if not self._is_cancelled and (problem := unavailable_store(_text(error))) is not None:
                raise RetriableException(f"the store is unavailable to the tasks: {problem}") from error
            transformed = None if self._is_cancelled else self._transformed
            if transformed is not None and (failure := transformed.failure(_text(error), error)) is not None:
                raise failure from error
            what = "was cancelled" if self._is_cancelled else f"failed: {_first_line(error)}"
            raise ConnectException(
                f"the Spark job{f' with {transformed.key!r}' if transformed else ''} {what}"
            ) from error

    def cancel(self) -> None:
        self._is_cancelled = True
        self._cancel_job()

    def _cancel_job(self) -> None:
        self._spark.cancelJobsWithTag(self._tag)

    def _run(self, spec: GenerationSpec, job: Callable[[], list[R]]) -> None:
        try:
            self._spark.addJobTag(self._tag)
            # Fair scheduling gives a free task slot to the connector with the fewest running tasks.
            self._spark.setLocalProperty(POOL, spec.connector)
            self._spark.setJobDescription(f"connector {spec.connector}, generation {spec.generation}")
            self._future.set_result(job())
        except BaseException as error:  # noqa: BLE001 - raised by results()
            self._future.set_exception(error)


class SparkLauncher:
    def __init__(
        self,
        spark: SparkContext,
        source: Source,
        columns: Collection[str],
        template: GenerationSpec,
        transformed: TransformedRecords | None = None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._columns = columns
        self._template = template
        self._transformed = transformed

    def launch(self, plan: GenerationPlan) -> SparkGeneration[TaskResult]:
        ranges = {
            planned.topic_partition: planned.offsets
            for task in plan.tasks
            for planned in task.ranges
            if planned.end > planned.start
        }
        reader = self._source.reader(ranges)
        spec = replace(
            self._template,
            generation=plan.generation,
            speculates=has_speculation(self._spark),
            readers=packed(reader.of([r.topic_partition for r in task.ranges]) for task in plan.tasks),
            columns=tuple(self._columns),
        )
        if self._transformed is not None:
            job: Job = self._transformed.job(spec, len(plan.tasks))
        else:
            job = task_job(self._spark, len(plan.tasks), spec, run_task)
        return SparkGeneration(self._spark, spec, job, TaskResult, transformed=self._transformed)


class SparkSourceLauncher:
    def __init__(self, spark: SparkContext, template: GenerationSpec) -> None:
        self._spark = spark
        self._template = template

    def launch(self, plan: GenerationPlan) -> SparkGeneration[SourceTaskResult]:
        check_task_slots(self._spark, len(plan.tasks))
        spec = replace(self._template, generation=plan.generation, speculates=has_speculation(self._spark))
        # Workers are not reused, so that hanging threads of the connector end with their process.
        job = task_job(self._spark, len(plan.tasks), spec, run_source_task, keeps_workers=False)
        return SparkGeneration(self._spark, spec, job, SourceTaskResult)


def task_job(
    spark: SparkContext,
    tasks: int,
    spec: GenerationSpec,
    work: Callable[[GenerationSpec, int], R],
    *,
    keeps_workers: bool = True,
) -> Job:
    return partial(
        run_tasks, spark, tasks, lambda number: to_row(work(spec, number)), keeps_workers=keeps_workers
    )


def run_tasks(
    spark: SparkContext, tasks: int, task: Callable[[int], T], *, keeps_workers: bool = True
) -> list[T]:
    def partition(number: int, rows: Iterable[object]) -> Iterator[T]:
        if keeps_workers:
            deque(rows, maxlen=0)  # Spark discards a worker that does not read all its input
        yield task(number)

    # Tasks read the source themselves, so empty partitions are sufficient. A DataFrame takes 3.5 s and 117 MB
    # more at a cold start, because Spark plans and compiles it.
    return spark.parallelize([], tasks).mapPartitionsWithIndex(partition).collect()


def _first_line(error: BaseException) -> str:
    if (dead := dead_worker(error)) is not None:
        return dead
    text = _text(error)
    lines = (line for line in text.splitlines() if line.strip())
    return raised(text) or next(lines, type(error).__name__)


def _text(error: BaseException) -> str:
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(error) if cause is None else str(cause.toString())
