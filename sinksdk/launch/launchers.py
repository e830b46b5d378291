"""Launching generations on a Spark that may have to be started first."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from sinksdk.errors import RetriableException
from sinksdk.launch.connectors import PreparedSink
from sinksdk.records import RECORD_COLUMNS
from sinksdk.runtime.outcomes import RunningGeneration, RunningSourceGeneration
from sinksdk.spark.generation_job import SparkLauncher
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.source_job import SparkSourceLauncher
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark import SparkContext


class Startable(Protocol):
    """A Spark that is started when it is needed."""

    def context(self) -> SparkContext | None:
        """Spark, started if need be; None when the end was asked for meanwhile."""
        ...

    def has_died(self) -> bool:
        """Whether the Spark that was used runs no more."""
        ...


class LauncherOnDemand:
    """Launches one connector's generations on a Spark that may have to be started first.

    Args:
        spark: which Spark.
        ready: whose generations.
        spec: what each of them has in common.
    """

    def __init__(self, spark: Startable, ready: PreparedSink, spec: GenerationSpec) -> None:
        self._spark = spark
        self._ready = ready
        self._spec = spec

    def launch(self, plan: GenerationPlan) -> RunningGeneration:
        """Start a generation's job.

        Raises:
            ConfigException: Spark could not be started.
            RetriableException: it has died meanwhile; the next launch starts another one.
        """
        session = self._spark.context()
        if session is None:
            return _NeverStarted()
        source, columns = self._ready.opened.source, columns_read(self._ready)
        with _telling_of_death(self._spark, plan):
            return SparkLauncher(session, source, columns, self._spec).launch(plan)


class SourceLauncherOnDemand:
    """Launches one source's generations on a Spark that may have to be started first.

    Args:
        spark: which Spark.
        spec: what each of them has in common.
    """

    def __init__(self, spark: Startable, spec: GenerationSpec) -> None:
        self._spark = spark
        self._spec = spec

    def launch(self, plan: GenerationPlan) -> RunningSourceGeneration:
        """Start a generation's job.

        Raises:
            ConfigException: Spark could not be started, or has no room for all tasks at once.
            RetriableException: it has died meanwhile; the next launch starts another one.
        """
        session = self._spark.context()
        if session is None:
            return _NeverStarted()
        with _telling_of_death(self._spark, plan):
            return SparkSourceLauncher(session, self._spec).launch(plan)


@contextmanager
def _telling_of_death(spark: Startable, plan: GenerationPlan) -> Iterator[None]:
    """What fails because Spark has died is tried again."""
    try:
        yield
    except Exception as error:
        if not spark.has_died():
            raise
        message = f"Spark has died while generation {plan.generation} was being launched"
        raise RetriableException(message) from error


def columns_read(ready: PreparedSink) -> Collection[str]:
    """What is read of each record: a dead letter is the whole of it, whatever the task uses."""
    if ready.config.dead_letter_topic:
        return tuple(RECORD_COLUMNS)
    return ready.connector.columns(ready.config)


class _NeverStarted:
    """A generation whose tasks never ran: all of it is read again."""

    def wait(self, timeout: float) -> bool:
        """It is over, once the driver has heard as well that it shall end: else it would plan another one."""
        time.sleep(timeout)
        return True

    def results(self) -> Sequence[Any]:
        """No task has anything to report."""
        return ()

    def cancel(self) -> None:
        """Nothing runs."""
