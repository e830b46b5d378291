"""Spark, started when the first generation needs it, and the launchers of generations on it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from functools import cache, partial
from signal import Signals
from typing import TYPE_CHECKING, Any, Final, Self

from sinksdk.errors import ConnectException, RetriableException
from sinksdk.launch.connectors import PreparedConnector, PreparedSink, PreparedSource
from sinksdk.launch.deployment import Deployment
from sinksdk.records import RECORD_COLUMNS
from sinksdk.runtime.supervisor import RunningTasks
from sinksdk.spark import context
from sinksdk.spark.generation_job import SparkLauncher, SparkSourceLauncher
from sinksdk.spark.task_slots import TaskSlots, read_task_slots
from sinksdk.store import identify
from sinksdk.store.records import GenerationPlan
from sinksdk.support.logs import LogSettings
from sinksdk.worker.generation_spec import GenerationSpec

if TYPE_CHECKING:
    from pyspark import SparkContext

log = logging.getLogger(__name__)

_CHANGING: Final = threading.Lock()
"""Held while Spark is started or ended: a process has one."""
_STARTED: Final[dict[SparkContext, set[SparkOnDemand]]] = {}
"""The Spark started by this process, if it runs, with its users."""


class SparkOnDemand:
    """Launches generations on a Spark that is started for the first of them, unless there is one to be used.

    By then the connector's ``start`` has run, so that its errors (no bucket, no access) show within a second.
    A context manager: it stops a Spark that it started, once nothing else here uses it.

    Args:
        name: of Spark's application, if it is started here.
        python_path: folders executors import the connector from, besides the installed packages.
        logs: how executors log.
        is_stopping: whether an end was requested; then nothing is launched any more.
        tell: called with a line for the operator.
        hear: called with signals that Spark's JVM gets; None: they end it.
    """

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        *,
        python_path: tuple[str, ...],
        logs: LogSettings,
        is_stopping: Callable[[], bool],
        tell: Callable[[str], None],
        hear: Callable[[Signals], None] | None = None,
    ) -> None:
        self._deployment = deployment
        self._name = name
        self._python_path = python_path
        self._logs = logs
        self._is_stopping = is_stopping
        self._tell = tell
        self._hear = hear
        self._let_go_of_signals: Callable[[], None] = lambda: None
        self._spark: SparkContext | None = None
        self._is_ours = False
        self._only_schedules = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _CHANGING:
            self._let_go_of_signals()
            spark = self._spark
            if spark is None or spark not in _STARTED:
                return  # somebody else's
            _STARTED[spark].discard(self)
            if not _STARTED[spark]:
                del _STARTED[spark]
                if context.is_alive(spark):
                    spark.stop()

    def check(self, ready: PreparedConnector) -> None:
        """Check a sink's transform on a Spark that runs already; otherwise its first generation does.

        That one may be long in coming, if there is nothing to read yet.

        Raises:
            ConfigException: the transform cannot be used.
        """
        settings = self._deployment.spark
        spark = settings.session or settings.context or (context.active_spark() if settings.joins else None)
        if isinstance(ready, PreparedSink) and spark is not None:
            takes_bytes = ready.connector.task_class.takes_bytes
            SparkLauncher.check(
                ready.config,
                spark,
                columns_read(ready),
                self._python_path,
                takes_bytes=takes_bytes,
                is_confined=not self._deployment.providers.sql,
            )

    def launcher(self, ready: PreparedSink) -> LauncherOnDemand:
        """Launches the generations of a sink with this configuration."""
        source, client = ready.opened.source, ready.opened.client
        # Spark may run already: then transforms are only slower.
        self._only_schedules = self._only_schedules and not ready.config.is_transformed
        spec = cache(partial(self._spec, ready.config.name, dead_letters=ready.dead_letters, source=client))

        @cache
        def launcher(spark: SparkContext) -> SparkLauncher:
            session = self._deployment.spark.session
            takes_bytes = ready.connector.task_class.takes_bytes
            return SparkLauncher(
                *(spark, source, columns_read(ready), spec(), ready.config),
                session=session,
                takes_bytes=takes_bytes,
                is_confined=not self._deployment.providers.sql,
            )

        return LauncherOnDemand(self, lambda spark, plan: launcher(spark).launch(plan))

    def source_launcher(self, ready: PreparedSource) -> LauncherOnDemand:
        """Launches the generations of a source with this configuration."""
        spec = cache(partial(self._spec, ready.config.name, target=ready.target))
        return LauncherOnDemand(self, lambda spark, plan: SparkSourceLauncher(spark, spec()).launch(plan))

    def _spec(self, connector: str, **more: Any) -> GenerationSpec:
        """The part of the tasks' specification that all its generations share; asks the store for its id."""
        url, store_id = self._deployment.store_url, identify(self._deployment.store)
        return GenerationSpec(url, store_id, connector, 0, self._python_path, self._logs, **more)

    def context(self) -> SparkContext | None:
        """Spark, started if necessary; None if an end was requested meanwhile.

        Raises:
            ConfigException: it cannot be started.
            ConnectException: the user's Spark has ended.
        """
        if self._is_stopping():
            return None
        with _CHANGING:  # connectors have threads of their own, and one Spark
            if self._spark is not None and not context.is_alive(self._spark):
                self._bury(self._spark)
            if self._spark is None:
                try:
                    self._spark = self._find_or_start()
                except ConnectException:
                    # A signal to the process group may end a JVM that just starts.
                    if not self._is_stopping():
                        raise
        return None if self._is_stopping() else self._spark

    def task_slots(self) -> TaskSlots | None:
        """The task slots in use; None while no Spark runs."""
        spark = self._spark
        if spark is None:
            return None
        try:
            return read_task_slots(spark)
        except Exception as error:  # noqa: BLE001 - Spark may stop at any time
            log.info("cannot read the task slots of Spark: %s", error)
            return None

    def has_died(self) -> bool:
        """Whether the used Spark has ended."""
        with _CHANGING:
            return self._spark is None or not context.is_alive(self._spark)

    def _bury(self, spark: SparkContext) -> None:
        master = self._deployment.spark.master
        if not self._is_ours:
            raise ConnectException(
                f"the Spark session that {self._name} was to use, on {master}, has ended, and sinksdk starts "
                f"no other in its place: run it again with a new session; what was committed stays committed"
            )
        self._spark = None
        if _STARTED.pop(spark, None) is not None:  # nobody else here has found out before
            log.error("Spark on %s has died; what ran is read again from its commits", master)
            context.forget_dead_spark()

    def _find_or_start(self) -> SparkContext:
        settings = self._deployment.spark
        spark = settings.context or (context.active_spark() if settings.joins else None)
        if spark is None:
            self._tell(f"starting Spark on {settings.master}")
            spark = context.start_spark(
                f"sinksdk {self._name}",
                settings.master,
                extra_conf=settings.conf,
                only_schedules=self._only_schedules,
            )
            _STARTED[spark] = set()
        if self._hear is not None:
            self._let_go_of_signals = context.hear_signals(spark, self._hear)
        self._is_ours = spark in _STARTED
        if self._is_ours:
            _STARTED[spark].add(self)
        return spark


class LauncherOnDemand:
    """Launches one connector's generations on a Spark that may have to be started first."""

    def __init__(
        self, spark: SparkOnDemand, launch: Callable[[SparkContext, GenerationPlan], RunningTasks[Any]]
    ) -> None:
        self._spark = spark
        self._launch = launch

    def launch(self, plan: GenerationPlan) -> RunningTasks[Any]:
        """Start a generation's job.

        Raises:
            ConfigException: Spark could not be started, or has no room for all tasks of a source at once.
            RetriableException: it has died meanwhile; the next launch starts another one.
        """
        spark = self._spark.context()
        if spark is None:
            return _NeverStarted()
        try:
            return self._launch(spark, plan)
        except Exception as error:
            if not self._spark.has_died():
                raise
            message = f"Spark has died while generation {plan.generation} was being launched"
            raise RetriableException(message) from error


def columns_read(ready: PreparedSink) -> Collection[str]:
    """The columns to read: all of them if records may become dead letters, or transforms see them."""
    if ready.config.dead_letter_topic or ready.config.transforms:
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
