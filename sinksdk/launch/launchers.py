"""Launchers of generations, on a Spark that is started on demand."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol

from sinksdk.errors import RetriableException
from sinksdk.launch.connectors import PreparedSink
from sinksdk.records import RECORD_COLUMNS
from sinksdk.runtime.supervisor import Report, RunningTasks
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark import SparkContext


class Startable(Protocol):
    """A Spark that is started on demand."""

    def context(self) -> SparkContext | None:
        """Spark, started if necessary; None if an end was requested meanwhile."""
        ...

    def has_died(self) -> bool:
        """Whether the used Spark has ended."""
        ...


Launch = Callable[["SparkContext", GenerationPlan], RunningTasks[Report]]
"""Starts a generation's job on a Spark that runs."""


class LauncherOnDemand(Generic[Report]):
    """Launches one connector's generations on a Spark that may have to be started first."""

    def __init__(self, spark: Startable, launch: Launch[Report]) -> None:
        self._spark = spark
        self._launch = launch

    def launch(self, plan: GenerationPlan) -> RunningTasks[Report]:
        """Start a generation's job.

        Raises:
            ConfigException: Spark could not be started, or has no room for all tasks of a source at once.
            RetriableException: it has died meanwhile; the next launch starts another one.
        """
        context = self._spark.context()
        if context is None:
            return _NeverStarted()
        try:
            return self._launch(context, plan)
        except Exception as error:
            if not self._spark.has_died():
                raise
            message = f"Spark has died while generation {plan.generation} was being launched"
            raise RetriableException(message) from error


def columns_read(ready: PreparedSink) -> Collection[str]:
    """The columns to read: all of them if records may become dead letters."""
    if ready.config.dead_letter_topic:
        return tuple(RECORD_COLUMNS)
    return ready.connector.columns(ready.config)


class _NeverStarted:
    """A generation whose tasks never ran: all of it is read again."""

    def wait(self, timeout: float) -> bool:
        """Ended once the driver, too, must end: otherwise it would plan another one."""
        time.sleep(timeout)
        return True

    def results(self) -> Sequence[Any]:
        """No task has anything to report."""
        return ()

    def cancel(self) -> None:
        """Nothing runs."""
