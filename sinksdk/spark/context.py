"""Starts and finds the Spark on which generations run."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from sinksdk.errors import ConfigException
from sinksdk.spark.conf import check_conf, configured, remember, settings_of
from sinksdk.spark.jvm import LOG_CONFIGURATION, JvmSignals, launch
from sinksdk.spark.master import check_master, is_local, is_loopback, with_attempts

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

__all__ = ["check_master", "spark_conf", "start_spark"]

_CONF: Final[Mapping[str, str]] = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Each connector has its own scheduling pool, and a single connector gets all task slots.
    "spark.scheduler.mode": "FAIR",
    # A speculative copy fences the first attempt: no data is lost, but the work is done twice.
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    # A crashing worker prints its stack.
    "spark.python.worker.faulthandler.enabled": "true",
    # Workers keep freed memory: returning it to the system each time would cost a fifth of the CPU time.
    "spark.executorEnv.MALLOC_ARENA_MAX": "2",
    "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": "33554432",
    "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": "16777216",
    "spark.executorEnv.ARROW_DEFAULT_MEMORY_POOL": "system",
}
_LOOPBACK: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
_WARM_WORKERS: Final[Mapping[str, str]] = {
    # The daemon runs only on local masters: elsewhere Python may lack sinksdk, which a task reports better
    # than a daemon.
    "spark.python.daemon.module": "sinksdk.spark.worker_daemon",
}
_JVM_OPTIONS: Final = "spark.driver.defaultJavaOptions"
# Sufficient if the JVM only schedules. The metaspace must hold Spark's classes, or they cause a collection.
_SMALL_JVM: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms48m -Xmn24m -XX:MetaspaceSize=128m"
_JVM_ENVIRONMENT: Final = ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS")
_COLLECTOR: Final = re.compile(r"-XX:\+Use\w*GC\b")


def start_spark(
    app_name: str, master: str, *, extra_conf: Mapping[str, str] | None = None, only_schedules: bool = True
) -> SparkContext:
    """Start Spark for connectors; a process has at most one.

    Executors run this interpreter, or ``PYSPARK_PYTHON`` on masters of other hosts, where sinksdk, the
    connectors and pyspark must be installed in the same versions. ``extra_conf`` overrides Spark's own
    configuration, which overrides sinksdk's defaults.
    """
    check_master(master, store_is_local_file=False)
    check_conf(extra_conf or {})
    context_class = _spark_context_class()
    theirs = configured()
    conf = spark_conf(app_name, master, extra_conf or {}, theirs, only_schedules=only_schedules)
    with _environment(_variables(master)), _own_signal_handlers():
        # A process has only one JVM, which keeps running after its SparkContext was stopped.
        gateway = context_class._gateway  # noqa: SLF001 - no public API
        if gateway is None:
            gateway = launch(conf)
            remember(gateway, {key: value for key, value in conf.items() if theirs.get(key) != value})
            # spark-submit has already processed the settings: for example, it resolved packages to jars.
            conf = {**settings_of(gateway), "spark.master": conf["spark.master"]}
        return _start(conf, gateway)


def is_alive(spark: SparkContext) -> bool:
    """Whether the JVM is alive and the application was not stopped by its cluster."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - installed with pyspark

    jvm = getattr(spark._gateway, "proc", None)  # noqa: SLF001 - no public API
    if jvm is not None and jvm.poll() is not None:
        return False
    try:
        return not spark._jsc.sc().isStopped()  # noqa: SLF001 - no public API
    except (Py4JError, OSError, AttributeError):
        return False


def context_of(session: object) -> SparkContext:
    from pyspark import SparkContext  # noqa: PLC0415 - loaded with the session
    from pyspark.sql import SparkSession  # noqa: PLC0415 - the same

    if isinstance(session, SparkSession):
        session = session.sparkContext
    if not isinstance(session, SparkContext):
        what = type(session)
        if what.__module__.startswith("pyspark.sql.connect"):
            raise ConfigException(
                "spark is a session of Spark Connect, whose driver is in another process, but a connector "
                "runs in the driver's process: give a classic session"
            )
        raise ConfigException(f"spark is a {what.__name__}: give a SparkSession or a SparkContext")
    if not is_alive(session):
        raise ConfigException("the given Spark session was stopped: create another one")
    return session


def session_of(given: object, spark: SparkContext) -> SparkSession | None:
    """Return the given session, or the active one of this thread; None if it belongs to another Spark."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - loaded with Spark

    session = given if isinstance(given, SparkSession) else SparkSession.getActiveSession()
    return session if session is not None and session.sparkContext is spark else None


def active_spark() -> SparkContext | None:
    if "pyspark" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - it is loaded

    active = SparkContext._active_spark_context  # noqa: SLF001 - no public API
    return active if active is not None and is_alive(active) else None


def listen_for_signals(
    spark: SparkContext, on_signal: Callable[[signal.Signals], None]
) -> Callable[[], None]:
    """Catch the first signal that would end Spark's JVM; return a function that restores the handlers."""
    return JvmSignals(spark._gateway, on_signal).stop_listening  # noqa: SLF001 - no public API


def forget_dead_spark() -> None:
    from pyspark import SparkContext, sql  # noqa: PLC0415 - already loaded

    # pyspark's own ``stop`` would send a request to the dead JVM.
    gateway = SparkContext._gateway  # noqa: SLF001 - no public API
    if gateway is not None:
        jvm = getattr(gateway, "proc", None)
        if jvm is not None:
            jvm.kill()  # the JVM may still run, although the application has ended
            jvm.wait()
        with contextlib.suppress(Exception):
            gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - else the dead JVM is used again
    SparkContext._active_spark_context = None  # noqa: SLF001 - else a second one is refused
    sql.SparkSession._instantiatedSession = None  # noqa: SLF001 - else the builder returns the dead one


def spark_conf(
    app_name: str,
    master: str,
    extra_conf: Mapping[str, str],
    theirs: Mapping[str, str] | None = None,
    *,
    only_schedules: bool = True,
) -> dict[str, str]:
    given = {**(theirs or {}), **extra_conf}
    conf = {"spark.app.name": app_name, **_CONF}
    if is_loopback(master):
        conf |= _LOOPBACK
    if is_local(master):
        conf |= _WARM_WORKERS
    # A local master that the user has configured keeps its number of attempts.
    is_theirs = theirs is not None and theirs.get("spark.master") == master
    conf |= {**given, "spark.master": master if is_theirs else with_attempts(master)}
    options = [f'"-Dlog4j2.configurationFile={LOG_CONFIGURATION.as_uri()}"']
    if only_schedules:
        options.append(_small_jvm(master, given))
    return conf | {_JVM_OPTIONS: " ".join(filter(None, [*options, given.get(_JVM_OPTIONS, "")]))}


def _small_jvm(master: str, given: Mapping[str, str]) -> str:
    # A JVM with two collectors does not start.
    options = [given.get(key, "") for key in (_JVM_OPTIONS, "spark.driver.extraJavaOptions")]
    options += [os.environ.get(name, "") for name in _JVM_ENVIRONMENT]
    return _SMALL_JVM if is_local(master) and not _COLLECTOR.search(" ".join(options)) else ""


def _spark_context_class() -> type[SparkContext]:
    try:
        from pyspark import SparkContext  # noqa: PLC0415 - its absence is reported here
    except ImportError as error:
        raise ConfigException(f"cannot import pyspark ({error}): install sinksdk[spark]") from error
    running = SparkContext._active_spark_context  # noqa: SLF001 - no public API
    if running is not None:
        raise ConfigException(
            f"a Spark session is already running in this process (application {running.appName!r}, master "
            f"{running.master}): stop it first, or use it"
        )
    return SparkContext


def _start(conf: Mapping[str, str], gateway: JavaGateway) -> SparkContext:
    from py4j.protocol import Py4JError  # noqa: PLC0415 - already loaded
    from pyspark import SparkConf, SparkContext, errors  # noqa: PLC0415 - the same

    try:
        return SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    except (Py4JError, errors.PySparkException) as error:
        cause = getattr(error, "java_exception", None) or error
        raise ConfigException(f"Spark cannot start on master {conf['spark.master']}: {cause}") from error


def _variables(master: str) -> dict[str, str]:
    python = sys.executable
    if not is_local(master):
        python = os.environ.get("PYSPARK_PYTHON", python)
    variables = {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable}
    return variables | {"SPARK_LOCAL_IP": "127.0.0.1"} if is_loopback(master) else variables


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    # pyspark's SIGINT handler cancels all jobs instead of closing tasks gracefully.
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, before)
