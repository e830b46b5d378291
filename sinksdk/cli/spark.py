"""Spark, started when the first generation needs it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

from sinksdk.cli.startable import Startable, StartableSource
from sinksdk.cli.startup import Place
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.logs import LogSettings
from sinksdk.records import RECORD_COLUMNS
from sinksdk.runtime.sink_supervisor import RunningGeneration
from sinksdk.runtime.source_supervisor import RunningSourceGeneration
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.places import Places, places
from sinksdk.store import identify
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)


class SparkOnDemand:
    """Launches generations on a Spark that is started for the first of them.

    By then the connector has been started: what it finds wrong (no bucket, no access) is said within
    a second. A context manager: Spark ends with it.

    Args:
        place: where.
        name: of Spark's application.
        python_path: folders executors import the connector from, besides the installed packages.
        logs: how executors log.
        is_stopping: whether the end was asked for meanwhile; then nothing is launched any more.
        tell: takes a line for the operator.
    """

    def __init__(
        self,
        place: Place,
        name: str,
        *,
        python_path: tuple[str, ...],
        logs: LogSettings,
        is_stopping: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self._place = place
        self._name = name
        self._python_path = python_path
        self._logs = logs
        self._is_stopping = is_stopping
        self._tell = tell
        self._spark: SparkContext | None = None
        self._starting = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._spark is not None and self._is_alive(self._spark):
            self._spark.stop()

    def launcher(self, ready: Startable) -> LauncherOnDemand:
        """Launches the generations of one sink with one configuration."""
        spec = self._spec(ready.config.name, kafka=ready.dead_letters, source=ready.opened.client)
        return LauncherOnDemand(self, ready, spec)

    def source_launcher(self, ready: StartableSource) -> SourceLauncherOnDemand:
        """Launches the generations of one source with one configuration."""
        return SourceLauncherOnDemand(self, self._spec(ready.config.name, target=ready.target))

    def _spec(self, connector: str, **more: Any) -> GenerationSpec:
        """What the tasks of all its generations must know."""
        place = self._place
        store_id = identify(place.store)
        return GenerationSpec(place.store_url, store_id, connector, 0, self._python_path, self._logs, **more)

    def context(self) -> SparkContext | None:
        """Spark, started if need be; None when the end was asked for meanwhile. Raises ConfigException."""
        if self._is_stopping():
            return None
        with self._starting:  # connectors have threads of their own, and one Spark
            if self._spark is not None and not self._is_alive(self._spark):
                self._bury()
            if self._spark is None:
                try:
                    self._spark = self._start()
                except ConnectException:
                    if (
                        not self._is_stopping()
                    ):  # a signal to the process group may end a JVM that just starts
                        raise
        return None if self._is_stopping() else self._spark

    def places(self) -> Places | None:
        """Who holds places now; None while no Spark runs."""
        spark = self._spark
        if spark is None:
            return None
        try:
            return places(spark)
        except Exception as error:  # noqa: BLE001 - of a Spark that ends just now nothing is known
            log.info("Spark does not tell who holds its places: %s", error)
            return None

    def has_died(self) -> bool:
        """Whether the Spark that was started runs no more."""
        with self._starting:
            return self._spark is None or not self._is_alive(self._spark)

    def _is_alive(self, spark: SparkContext) -> bool:
        from sinksdk.spark.context import is_alive  # noqa: PLC0415 - loads pyspark

        return is_alive(spark)

    def _bury(self) -> None:
        from sinksdk.spark.context import forget_dead_spark  # noqa: PLC0415 - loads pyspark

        log.error("Spark on %s has died; what ran is read again from its commits", self._place.master)
        forget_dead_spark()
        self._spark = None

    def _start(self) -> SparkContext:
        from sinksdk.spark.context import start_spark  # noqa: PLC0415 - loads pyspark, which takes a second

        place = self._place
        self._tell(f"starting Spark on {place.master}")
        return start_spark(f"sinksdk {self._name}", place.master, extra_conf=place.spark_conf)


class LauncherOnDemand:
    """Launches one connector's generations on a Spark that may have to be started first.

    Args:
        spark: which Spark.
        ready: whose generations.
        spec: what each of them has in common.
    """

    def __init__(self, spark: SparkOnDemand, ready: Startable, spec: GenerationSpec) -> None:
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
        from sinksdk.spark.generation_job import SparkLauncher  # noqa: PLC0415 - loads pyspark

        source, columns = self._ready.opened.source, columns_read(self._ready)
        with _telling_of_death(self._spark, plan):
            return SparkLauncher(session, source, columns, self._spec).launch(plan)


class SourceLauncherOnDemand:
    """Launches one source's generations on a Spark that may have to be started first.

    Args:
        spark: which Spark.
        spec: what each of them has in common.
    """

    def __init__(self, spark: SparkOnDemand, spec: GenerationSpec) -> None:
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
        from sinksdk.spark.source_job import SparkSourceLauncher  # noqa: PLC0415 - loads pyspark

        with _telling_of_death(self._spark, plan):
            return SparkSourceLauncher(session, self._spec).launch(plan)


@contextmanager
def _telling_of_death(spark: SparkOnDemand, plan: GenerationPlan) -> Iterator[None]:
    """What fails because Spark has died is tried again."""
    try:
        yield
    except Exception as error:
        if not spark.has_died():
            raise
        message = f"Spark has died while generation {plan.generation} was being launched"
        raise RetriableException(message) from error


def columns_read(ready: Startable) -> Collection[str]:
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
