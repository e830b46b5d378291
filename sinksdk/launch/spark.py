"""Starts Spark when the first generation needs it, and launches generations on it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from functools import cache, partial
from signal import Signals
from typing import TYPE_CHECKING, Any, Final, Self

from sinksdk.engine.clock import SystemWallClock
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.launch.deployment import Deployment, PreparedConnector, PreparedSink, PreparedSource
from sinksdk.records import RECORD_COLUMNS
from sinksdk.runtime.supervisor import NoTasks, RunningTasks
from sinksdk.spark import context
from sinksdk.spark.conf import store_conf
from sinksdk.spark.generation_job import SparkLauncher, SparkSourceLauncher
from sinksdk.spark.task_slots import TaskSlots, read_task_slots
from sinksdk.spark.transform import TransformedRecords
from sinksdk.store import identify
from sinksdk.store.records import GenerationPlan
from sinksdk.support.logs import LogSettings
from sinksdk.worker.generation_spec import GenerationSpec

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_PAUSE: Final = 0.1  # seconds
_CHANGING: Final = threading.Lock()
# Spark as started by sinksdk in this process, with the connectors that use it.
_STARTED: Final[dict[SparkContext, set[SparkOnDemand]]] = {}


class SparkOnDemand:
    """Launches generations on the user's Spark, or on one that is started for the first generation."""

    def __init__(
        self,
        deployment: Deployment,
        name: str,
        *,
        python_path: tuple[str, ...],
        logs: LogSettings,
        is_stopping: Callable[[], bool],
        report: Callable[[str], None],
        on_jvm_signal: Callable[[Signals], None] | None = None,
    ) -> None:
        self._deployment = deployment
        self._name = name
        self._python_path = python_path
        self._logs = logs
        self._is_stopping = is_stopping
        self._report = report
        self._on_jvm_signal = on_jvm_signal
        self._stop_listening: Callable[[], None] = lambda: None
        self._spark: SparkContext | None = None
        self._is_ours = False
        self._only_schedules = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with _CHANGING:
            self._stop_listening()
            spark = self._spark
            if spark is None or spark not in _STARTED:
                return  # Spark belongs to the user
            _STARTED[spark].discard(self)
            if not _STARTED[spark]:
                del _STARTED[spark]
                if context.is_alive(spark):
                    spark.stop()

    def check(self, ready: PreparedConnector) -> None:
        settings = self._deployment.spark
        spark = settings.session or settings.context or (context.active_spark() if settings.joins else None)
        # Without a running Spark the first generation makes this check, perhaps much later if there are no
        # records yet.
        if isinstance(ready, PreparedSink) and spark is not None:
            self._transformed(ready, spark)

    def launcher(self, ready: PreparedSink) -> LauncherOnDemand:
        source, client = ready.opened.source, ready.opened.client
        # Without transforms a smaller JVM is started; in a JVM that runs already, transforms are only slower.
        self._only_schedules = self._only_schedules and not ready.config.is_transformed
        spec = cache(partial(self._spec, ready.config.name, dead_letters=ready.dead_letters, source=client))

        @cache
        def launcher(spark: SparkContext) -> SparkLauncher:
            template = spec()  # fails at once while the store is unavailable
            transformed = self._transformed(ready, self._deployment.spark.session or spark)
            return SparkLauncher(spark, source, columns_read(ready), template, transformed)

        return LauncherOnDemand(self, lambda spark, plan: launcher(spark).launch(plan))

    def source_launcher(self, ready: PreparedSource) -> LauncherOnDemand:
        spec = cache(partial(self._spec, ready.config.name, target=ready.target))
        return LauncherOnDemand(self, lambda spark, plan: SparkSourceLauncher(spark, spec()).launch(plan))

    def _transformed(
        self, ready: PreparedSink, spark: SparkContext | SparkSession
    ) -> TransformedRecords | None:
        return TransformedRecords.of(
            ready.config,
            spark,
            columns_read(ready),
            self._python_path,
            takes_bytes=ready.connector.task_class.takes_bytes,
            is_confined=not self._deployment.providers.sql,
        )

    def _spec(self, connector: str, **more: Any) -> GenerationSpec:
        url, store_id = self._deployment.store_url, identify(self._deployment.store)
        return GenerationSpec(url, store_id, connector, 0, self._python_path, self._logs, **more)

    def context(self) -> SparkContext | None:
        if self._is_stopping():
            return None
        with _CHANGING:  # connectors have their own threads, and share one Spark
            if self._spark is not None and not context.is_alive(self._spark):
                self._forget_dead(self._spark)
            if self._spark is None:
                try:
                    # The connector's ``start`` runs before, so that its errors (no bucket, no access) show
                    # within a second.
                    self._spark = self._find_or_start()
                except ConnectException:
                    # A signal to the process group may end a JVM that is starting.
                    if not self._is_stopping():
                        raise
        return None if self._is_stopping() else self._spark

    def task_slots(self) -> TaskSlots | None:
        spark = self._spark
        if spark is None:
            return None
        try:
            return read_task_slots(spark)
        except Exception as error:  # noqa: BLE001 - Spark may stop at any time
            log.info("cannot read the task slots of Spark: %s", error)
            return None

    def has_died(self) -> bool:
        with _CHANGING:
            return self._spark is None or not context.is_alive(self._spark)

    def _forget_dead(self, spark: SparkContext) -> None:
        master = self._deployment.spark.master
        if not self._is_ours:
            raise ConnectException(
                f"the Spark session of {self._name} on {master} has stopped, and sinksdk does not replace a "
                f"session that it did not start: run the connector again with a new session; committed "
                f"records stay committed"
            )
        self._spark = None
        if _STARTED.pop(spark, None) is not None:  # else another connector has found this Spark dead before
            log.error("Spark on %s has died; its connectors resume from their commits", master)
            context.forget_dead_spark()

    def _find_or_start(self) -> SparkContext:
        settings = self._deployment.spark
        spark = settings.context or (context.active_spark() if settings.joins else None)
        if spark is None:
            self._report(f"starting Spark on {settings.master}")
            spark = context.start_spark(
                f"sinksdk {self._name}",
                settings.master,
                extra_conf={**store_conf(self._deployment.store_url), **settings.conf},
                only_schedules=self._only_schedules,
            )
            _STARTED[spark] = set()
        if self._on_jvm_signal is not None:
            self._stop_listening = context.listen_for_signals(spark, self._on_jvm_signal)
        self._is_ours = spark in _STARTED
        if self._is_ours:
            _STARTED[spark].add(self)
        return spark


class LauncherOnDemand:
    def __init__(
        self, spark: SparkOnDemand, launch: Callable[[SparkContext, GenerationPlan], RunningTasks[Any]]
    ) -> None:
        self._spark = spark
        self._launch = launch

    def launch(self, plan: GenerationPlan) -> RunningTasks[Any]:
        spark = self._spark.context()
        if spark is None:
            # A stop was requested. Without a pause, the driver would plan generations until it stops.
            nothing = NoTasks(SystemWallClock())
            nothing.wait(_PAUSE)
            nothing.close()
            return nothing
        try:
            return self._launch(spark, plan)
        except Exception as error:
            if not self._spark.has_died():
                raise
            raise RetriableException(f"Spark died while it launched generation {plan.generation}") from error


def columns_read(ready: PreparedSink) -> Collection[str]:
    # Dead letters and transforms need whole records.
    if ready.config.dead_letter_topic or ready.config.transforms:
        return tuple(RECORD_COLUMNS)
    return ready.connector.columns(ready.config)
