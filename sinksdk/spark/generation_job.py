"""One generation as one Spark job: one Spark partition per task, ``mapInArrow``, results as rows."""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from threading import Thread
from typing import TYPE_CHECKING, Generic

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as all of Spark's users know it

from sinksdk.errors import ConfigException, ConnectException, RetriableException
from sinksdk.logs import same_subject
from sinksdk.spark.batches import RANGE
from sinksdk.spark.conf import speculates
from sinksdk.spark.executor import run_task
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.places import POOL
from sinksdk.spark.python_errors import missing_module, raised, unavailable_store
from sinksdk.spark.task_result import R, TaskResult, from_rows, to_row
from sinksdk.store.records import GenerationPlan, PlannedRange, TaskPlan

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
        columns: what the connector uses of a record; the rest is not sent to Python.
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
        """Start the job of a generation."""
        spec = replace(self._template, generation=plan.generation, speculates=speculates(self._spark))
        frame = generation_frame(self._spark, self._source, plan.tasks, self._columns)
        return SparkGeneration(self._spark, frame, spec, run_task, TaskResult)


def generation_frame(
    spark: SparkSession, source: Source, tasks: Sequence[TaskPlan], columns: Collection[str]
) -> DataFrame:
    """One Spark partition per task: its control row, then its ranges' rows in the plan's order.

    Columns: ``range`` int, ``offset`` long, and those of ``columns`` that the source has; timestamps
    as milliseconds (long).
    """
    reads = [_task_reads(spark, source, task.ranges, columns) for task in tasks]
    names = _common_columns(reads)
    return functools.reduce(
        _union, (_task_frame(spark, number, frames, names) for number, frames in enumerate(reads))
    )


def _task_reads(
    spark: SparkSession, source: Source, ranges: Sequence[PlannedRange], columns: Collection[str]
) -> list[DataFrame]:
    """The rows of a task's ranges, each with its range's position in the plan."""
    wanted = {at: planned for at, planned in enumerate(ranges) if planned.end > planned.start}
    if not wanted:
        return []
    if source.reads_together:
        rows = source.read(spark, {planned.topic_partition: planned.offsets for planned in wanted.values()})
        return [_numbered(rows, _position(wanted), columns)]
    return [
        _numbered(source.read(spark, {planned.topic_partition: planned.offsets}), F.lit(at), columns)
        for at, planned in wanted.items()
    ]


def _numbered(rows: DataFrame, position: Column, columns: Collection[str]) -> DataFrame:
    wanted = [position.cast("int").alias(RANGE), F.col("offset")]
    wanted += [_column(name) for name in rows.columns if name in columns and name != "offset"]
    return rows.select(*wanted)


def _position(ranges: Mapping[int, PlannedRange]) -> Column:
    """A row's range, from its topic and partition.

    An array by partition, so that a row costs one comparison per topic, not per partition.
    """
    by_topic: dict[str, dict[int, int]] = {}
    for at, planned in ranges.items():
        by_topic.setdefault(planned.topic, {})[planned.partition] = at
    position = F.lit(None)
    for topic, found in by_topic.items():
        positions = F.array(*(F.lit(found.get(number)) for number in range(max(found) + 1)))
        position = F.when(F.col("topic") == topic, F.get(positions, F.col("partition"))).otherwise(position)
    return position


def _column(name: str) -> Column:
    # Milliseconds, floored, in the JVM: what Kafka has, and what needs no further care in Python.
    return F.unix_millis(name).alias(name) if name == "timestamp" else F.col(name)


def _common_columns(reads: Sequence[Sequence[DataFrame]]) -> list[str]:
    """Every column that any of the frames has: partitions may differ in having headers."""
    return list(dict.fromkeys(name for frames in reads for frame in frames for name in frame.columns))


def _task_frame(
    spark: SparkSession, number: int, frames: Sequence[DataFrame], names: Sequence[str]
) -> DataFrame:
    control = spark.range(1, numPartitions=1).select(F.lit(-1 - number).cast("int").alias(RANGE))
    return functools.reduce(_union, (_only(frame, names) for frame in frames), control).coalesce(1)


def _only(frame: DataFrame, names: Sequence[str]) -> DataFrame:
    return frame.select(*(name for name in names if name in frame.columns))


def _union(one: DataFrame, other: DataFrame) -> DataFrame:
    return one.unionByName(other, allowMissingColumns=True)


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
