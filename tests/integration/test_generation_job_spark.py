"""The Spark job of a generation: ended at once when it is cancelled, from whatever thread."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from sinksdk.errors import ConnectException
from sinksdk.spark.batches import task_number
from sinksdk.spark.generation_job import SparkGeneration, control_frame
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.task_result import TaskResult

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

LONG = 60.0  # seconds: as long as a task that is stuck


def stuck(spec: GenerationSpec, batches: Iterator[pa.RecordBatch]) -> TaskResult:
    """A task that has much to do, or waits for something that never comes."""
    time.sleep(LONG)
    return TaskResult(0, 1, [])


def running_stuck(spark: SparkSession, generation: int) -> SparkGeneration[TaskResult]:
    """A generation of one such task."""
    spec = GenerationSpec("sqlite:///absent", "id", "lines", generation)
    frame = spark.range(1, numPartitions=1).toDF("range")
    return SparkGeneration(spark, frame, spec, stuck, TaskResult)


def test_a_cancelled_generation_ends_at_once(spark: SparkSession) -> None:
    """Its tasks are killed whatever they do; others of the same session go on."""
    one, other = running_stuck(spark, 1), running_stuck(spark, 2)
    assert not one.wait(5), "it should be running"

    one.cancel()

    assert one.wait(10)
    with pytest.raises(ConnectException, match="cancelled"):
        one.results()
    assert not other.wait(0)
    other.cancel()
    assert other.wait(10)


def test_a_generation_cancelled_before_its_job_began_ends_too(spark: SparkSession) -> None:
    """While it is only being planned there is no job that could be cancelled."""
    running = running_stuck(spark, 1)

    running.cancel()

    assert running.wait(20)


def process_id(spec: GenerationSpec, rows: Iterator[pa.RecordBatch]) -> TaskResult:
    """A task that tells where it runs."""
    return TaskResult(task_number(rows), 1, [], os.getpid())


def test_generations_find_the_workers_of_those_before(spark: SparkSession) -> None:
    """What is kept in a process, as Kafka's consumers are, is there in the next generation.

    Regression: a task left the end of its control stream, and Spark threw its worker away.
    """
    seen = []
    for number in range(1, 4):
        spec = GenerationSpec("sqlite:///absent", "id", "lines", number)
        running = SparkGeneration(spark, control_frame(spark, 1), spec, process_id, TaskResult)
        assert running.wait(30)
        seen += [result.peak_memory for result in running.results()]
    assert len(set(seen)) == 1, seen
