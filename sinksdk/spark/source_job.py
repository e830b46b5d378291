"""One generation of a source as one Spark job: one Spark partition per task, until they are asked to stop."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException
from sinksdk.spark.conf import speculates
from sinksdk.spark.generation_job import SparkGeneration
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.master import is_local, places_of
from sinksdk.spark.source_executor import run_source_task
from sinksdk.spark.task_result import SourceTaskResult
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)


class SparkSourceLauncher:
    """Starts generations of one source as Spark jobs.

    Args:
        spark: where they run.
        template: what every task must know, whatever its generation.
    """

    def __init__(self, spark: SparkContext, template: GenerationSpec) -> None:
        self._spark = spark
        self._template = template

    def launch(self, plan: GenerationPlan) -> SparkGeneration[SourceTaskResult]:
        """Start the job of a generation.

        Raises:
            ConfigException: a local Spark will never run all its tasks at once.
        """
        _expect_room(self._spark, len(plan.tasks))
        spec = replace(self._template, generation=plan.generation, speculates=speculates(self._spark))
        # What the author's code leaves behind, threads that hang above all, ends with its task.
        return SparkGeneration(
            self._spark, len(plan.tasks), spec, run_source_task, SourceTaskResult, keeps_workers=False
        )


def _expect_room(context: SparkContext, tasks: int) -> None:
    """Tasks of a source run for as long as it does: one that finds no place now never will."""
    master = context.master or ""
    places = places_of(master, context.defaultParallelism)
    if tasks <= places:
        return
    if is_local(master):
        raise ConfigException(
            f"{tasks} tasks of a source run at the same time, but Spark on {context.master} has places for "
            f"{places}: lower 'tasks.max', or give it more (--master 'local[N]')"
        )
    log.warning(
        "%d tasks of a source run at the same time, and Spark on %s has places for %d now; the others wait "
        "for executors",
        tasks,
        context.master,
        places,
    )
