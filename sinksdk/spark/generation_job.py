"""One generation as one Spark job: one Spark partition per task, ``mapInArrow``, results as rows."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Generic

import pyarrow as pa

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.logs import same_subject
from sinksdk.spark.batches import TASK
from sinksdk.spark.conf import speculates
from sinksdk.spark.executor import run_task
from sinksdk.spark.generation_spec import GenerationSpec, packed
from sinksdk.spark.places import POOL
from sinksdk.spark.python_errors import missing_module, raised, unavailable_store
from sinksdk.spark.task_result import R, TaskResult, from_rows, to_row
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sinksdk.sources import Source

_AGAIN = 0.5  # seconds until a job that was cancelled and goes on is cancelled again


Work = Callable[[GenerationSpec, Iterator[pa.RecordBatch]], R]
"""A task on an executor: from its input, whose first row is its control row, to what it reports."""


class SparkGeneration(Generic[R]):
    """A generation that runs.

    Args:
        spark: the session.
        frame: one Spark partition per task, each beginning with its control row.
        spec: what every task must know.
        work: what each of them does.
        kind: what they report.
    """

    def __init__(
        self, spark: SparkSession, frame: DataFrame, spec: GenerationSpec, work: Work[R], kind: type[R]
    ) -> None:
        self._spark = spark
        self._work: Work[R] = work
        self._kind: type[R] = kind
        self._tag = f"sinksdk-{uuid.uuid4().hex}"
        self._is_cancelled = False
        self._future: Future[list[R]] = Future()
        run = same_subject(lambda: self._run(frame, spec))
        self._thread = Thread(target=run, name=f"generation-{spec.generation}", daemon=True)
        self._thread.start()

    def wait(self, timeout: float) -> bool:
        """Wait at most so many seconds; whether the generation has ended."""
        deadline = time.monotonic() + timeout
        while self._thread.is_alive() and (left := deadline - time.monotonic()) > 0:
            self._thread.join(min(left, _AGAIN))
            if self._is_cancelled:
                self._cancel_job()  # what was only being planned had no job yet
        return not self._thread.is_alive()

    def results(self) -> list[R]:
        """What the tasks reported, once it has ended.

        Raises:
            ConfigException: the executors' Python lacks a module.
            RetriableException: the tasks' store has not answered them, however often Spark tried.
            ConnectException: the job itself failed: a task's worker died too often, Spark's own error.
        """
        try:
            return self._future.result(timeout=0)
        except Exception as error:
            if not self._is_cancelled and (module := missing_module(_text(error))) is not None:
                python = self._spark.sparkContext.pythonExec
                raise ConfigException(
                    f"the executors' Python, {python}, has no module '{module}': install sinksdk, the "
                    f"connector and all they import there, in the versions that the driver has, or name "
                    f"another Python with PYSPARK_PYTHON"
                ) from error
            if not self._is_cancelled and (problem := unavailable_store(_text(error))) is not None:
                raise RetriableException(f"its tasks cannot work: {problem}") from error
            what = "was cancelled" if self._is_cancelled else f"failed: {_first_line(error)}"
            message = f"the Spark job {what}"
            raise ConnectException(message) from error

    def cancel(self) -> None:
        """End the job; its tasks' workers are killed and clean nothing up."""
        self._is_cancelled = True
        self._cancel_job()

    def _cancel_job(self) -> None:
        self._spark.sparkContext.cancelJobsWithTag(self._tag)

    def _run(self, frame: DataFrame, spec: GenerationSpec) -> None:
        work = self._work

        def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            row = to_row(work(spec, batches))
            yield pa.RecordBatch.from_arrays([pa.array([row], pa.string())], names=["result"])

        try:
            # A session's own tags are its thread's: interruptTag from another thread finds nothing.
            self._spark.sparkContext.addJobTag(self._tag)
            # A place that becomes free is first offered to the connector that has the fewest.
            self._spark.sparkContext.setLocalProperty(POOL, spec.connector)
            rows = frame.mapInArrow(task, "result string").collect()
            self._future.set_result(from_rows(self._kind, (row.result for row in rows)))
        except BaseException as error:  # noqa: BLE001 - it is raised where the results are asked for
            self._future.set_exception(error)


class SparkLauncher:
    """Starts generations of one sink as Spark jobs.

    Args:
        spark: the session.
        source: where records are read from.
        columns: what the connector uses of a record; the rest is not read.
        template: what every task must know, whatever its generation.
    """

    def __init__(
        self, spark: SparkSession, source: Source, columns: Collection[str], template: GenerationSpec
    ) -> None:
        self._spark = spark
        self._source = source
        self._columns = columns
        self._template = template

    def launch(self, plan: GenerationPlan) -> SparkGeneration[TaskResult]:
        """Start the job of a generation.

        Raises:
            RetriableException, ConnectException: the source has not what was planned.
        """
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
            speculates=speculates(self._spark),
            readers=packed(reader.of([r.topic_partition for r in task.ranges]) for task in plan.tasks),
            columns=tuple(self._columns),
        )
        frame = control_frame(self._spark, len(plan.tasks))
        return SparkGeneration(self._spark, frame, spec, run_task, TaskResult)


def control_frame(spark: SparkSession, tasks: int) -> DataFrame:
    """One Spark partition per task, with nothing but its control row."""
    return spark.range(0, tasks, 1, numPartitions=tasks).withColumnRenamed("id", TASK)


def _first_line(error: BaseException) -> str:
    """What an error says, in one line; of Java's its innermost cause, of a Python worker's what it raised."""
    text = _text(error)
    said = (line for line in text.splitlines() if line.strip())
    return raised(text) or next(said, type(error).__name__)


def _text(error: BaseException) -> str:
    """All that an error says; of Java's, what its innermost cause says."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(error) if cause is None else str(cause.toString())
