"""Spark's task slots: their number, and the running and waiting tasks of each connector."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException
from sinksdk.spark.master import is_local, places_of

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

POOL = "spark.scheduler.pool"
"""Property of a thread: the scheduling pool of the jobs that it starts."""


@dataclass(frozen=True, slots=True)
class Held:
    """One connector's tasks in Spark: running ones, and those that wait for a task slot.

    Args:
        longest: seconds since the start of the first task in the stages that run.
    """

    running: int = 0
    waiting: int = 0
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class Places:
    """Task slots of the process's Spark, and the connectors with a generation there."""

    total: int
    held: Mapping[str, Held] = field(default_factory=dict)


LookAtPlaces = Callable[[], Places | None]
"""Returns the task slots of this process's Spark, if it runs one."""


def places(spark: SparkContext) -> Places:
    """The current state of Spark's scheduler.

    Raises:
        Exception: it has ended.
    """
    held = dict[str, Held]()
    # pyspark's own status tracker does not tell of pools, nor of times.
    stages = spark._jsc.sc().statusStore().activeStages()  # noqa: SLF001 - the classic API has no public way
    for stage in (stages.apply(at) for at in range(stages.size())):
        pool, running = stage.schedulingPool(), stage.numActiveTasks()
        waiting = stage.numTasks() - running - stage.numCompleteTasks() - stage.numFailedTasks()
        first = stage.firstTaskLaunchedTime()
        seconds = max(time.time() - first.get().getTime() / 1000, 0.0) if first.isDefined() else 0.0
        before = held.get(pool, Held())
        held[pool] = Held(
            before.running + running,
            before.waiting + max(waiting, 0),
            max(before.longest, seconds if running else 0.0),
        )
    return Places(places_of(spark.master or "", spark.defaultParallelism), held)


def expect_room(context: SparkContext, tasks: int) -> None:
    """Raise ConfigException if a local Spark has too few task slots: a source's tasks never free theirs."""
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


def speculates(spark: SparkContext) -> bool:
    """Whether it runs second copies of slow tasks."""
    return spark.getConf().get("spark.speculation", "false").lower() == "true"
