"""Task slots of a Spark: their number, and the tasks of each connector that run in them or wait for one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sinksdk.errors import ConfigException
from sinksdk.spark.master import is_local, task_slots_of

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

# Spark's thread-local property for the scheduling pool of a job.
POOL = "spark.scheduler.pool"


@dataclass(frozen=True, slots=True)
class ConnectorSlots:
    running: int = 0
    waiting: int = 0
    # Seconds since the start of the first task in the running stages.
    longest: float = 0.0


@dataclass(frozen=True, slots=True)
class TaskSlots:
    total: int
    by_connector: Mapping[str, ConnectorSlots] = field(default_factory=dict)


ReadTaskSlots = Callable[[], TaskSlots | None]


def read_task_slots(spark: SparkContext) -> TaskSlots:
    found = dict[str, ConnectorSlots]()
    # pyspark's own status tracker reports neither pools nor times.
    stages = spark._jsc.sc().statusStore().activeStages()  # noqa: SLF001 - no public API
    for stage in (stages.apply(at) for at in range(stages.size())):
        pool, running = stage.schedulingPool(), stage.numActiveTasks()
        waiting = stage.numTasks() - running - stage.numCompleteTasks() - stage.numFailedTasks()
        first = stage.firstTaskLaunchedTime()
        seconds = max(time.time() - first.get().getTime() / 1000, 0.0) if first.isDefined() else 0.0
        before = found.get(pool, ConnectorSlots())
        found[pool] = ConnectorSlots(
            before.running + running,
            before.waiting + max(waiting, 0),
            max(before.longest, seconds if running else 0.0),
        )
    return TaskSlots(task_slots_of(spark.master or "", spark.defaultParallelism), found)


def check_task_slots(context: SparkContext, tasks: int) -> None:
    master = context.master or ""
    slots = task_slots_of(master, context.defaultParallelism)
    # A source's tasks keep their task slots as long as they run.
    if tasks <= slots:
        return
    if is_local(master):
        raise ConfigException(
            f"a source's {tasks} tasks need a task slot each, but Spark on {master} has {slots}: lower "
            f"'tasks.max', or give Spark more task slots (--master 'local[N]')"
        )
    log.warning(
        "a source's %d tasks need a task slot each, and Spark on %s has %d now; the others wait for "
        "executors",
        tasks,
        master,
        slots,
    )


def has_speculation(spark: SparkContext) -> bool:
    return spark.getConf().get("spark.speculation", "false").lower() == "true"
