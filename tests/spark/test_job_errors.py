"""Messages of failed Spark jobs."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.logger import PySparkLogger

from sinksdk import ConfigException, ConnectException, RetriableException
from sinksdk.spark.generation_job import SparkGeneration, _first_line
from sinksdk.spark.jvm import data_error, failed_task, missing_module, raised
from sinksdk.spark.transform import _CONTEXT_LOGGERS, _quiet


class JavaThrowable:
    def __init__(self, text: str, cause: JavaThrowable | None = None) -> None:
        self._text = text
        self._cause = cause

    def toString(self) -> str:  # noqa: N802 - Java's
        return self._text

    def getMessage(self) -> str:  # noqa: N802 - Java's
        return self._text

    def getCause(self) -> JavaThrowable | None:  # noqa: N802 - Java's
        return self._cause


class Py4JJavaError(Exception):
    def __init__(self, java_exception: JavaThrowable) -> None:
        super().__init__("An error occurred while calling o661.collectToPython.\n: java.lang.…")
        self.java_exception = java_exception


def test_a_java_error_is_its_innermost_cause() -> None:
    innermost = JavaThrowable(
        "org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: x"
    )
    error = Py4JJavaError(
        JavaThrowable("java.util.concurrent.ExecutionException", JavaThrowable("…", innermost))
    )

    assert _first_line(error) == (
        "org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: x"
    )


def test_other_errors_are_their_first_line() -> None:
    assert _first_line(RuntimeError("\n[CODE] what happened\nJVM stacktrace:\n…")) == "[CODE] what happened"
    assert _first_line(RuntimeError()) == "RuntimeError"


MISSING = """
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/python/lib/python3.11/site-packages/pyspark/worker.py", line 1, in main
    func, profiler, deserializer, serializer = read_command(pickleSer, infile)
pyspark.serializers.SerializationError: Caused by Traceback (most recent call last):
  File "/opt/python/lib/python3.11/site-packages/pyspark/serializers.py", line 2, in _read_with_length
    return self.loads(obj)
ModuleNotFoundError: No module named 'sinksdk'

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""


def test_a_workers_error_is_the_raised_exception() -> None:
    assert _first_line(RuntimeError(MISSING)) == "ModuleNotFoundError: No module named 'sinksdk'"


def test_a_long_message_is_its_first_line() -> None:
    # SQLAlchemy ends each error with a link to its manual.
    text = """Traceback (most recent call last):
  File "/a.py", line 1, in put
    connection.execute(insert)
sqlalchemy.exc.OperationalError: (psycopg.OperationalError) connection refused
[SQL: INSERT INTO t VALUES (1)]
(Background on this error at: https://sqlalche.me/e/20/e3q8)
"""
    assert raised(text) == "sqlalchemy.exc.OperationalError: (psycopg.OperationalError) connection refused"
    assert raised("no trace") is None


CAST = "[CAST_INVALID_INPUT] The value 'x' cannot be cast. SQLSTATE: 22018"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"org.apache.spark.SparkNumberFormatException: {CAST}\n== SQL ==\nstring(value) > 60", CAST),
        ("[USER_RAISED_EXCEPTION] no SQLSTATE: P0001", "[USER_RAISED_EXCEPTION] no SQLSTATE: P0001"),
        ("[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 1 bytes. SQLSTATE: 53200", None),
        (f"{MISSING} [DIVIDE_BY_ZERO] SQLSTATE: 22012", None),
        ("java.lang.OutOfMemoryError", None),
    ],
)
def test_errors_about_values_are_found_by_sqlstate(text: str, line: str | None) -> None:
    assert data_error(text) == line


def test_the_failed_task_is_found_in_the_errors_context() -> None:
    cause = ValueError("[DIVIDE_BY_ZERO]")
    cause.__context__ = RuntimeError("Job aborted due to stage failure: Task 3 in stage 7.0 failed 1 times")
    assert failed_task(cause) == 3
    assert failed_task(ValueError("another")) is None


@pytest.mark.parametrize(("text", "module"), [(MISSING, "sinksdk"), ("ModuleNotFoundError", None)])
def test_a_missing_module_of_executors_is_found(text: str, module: str | None) -> None:
    assert missing_module(text) == module


def test_a_missing_module_of_executors_is_a_config_exception() -> None:
    # A retry would fail in the same way.
    job = object.__new__(SparkGeneration)
    job._is_cancelled = False
    job._future = Future()
    job._transformed = None
    job._future.set_exception(RuntimeError(MISSING))
    job._spark = SimpleNamespace(pythonExec="/usr/bin/python3")  # type: ignore[assignment]  # all that is asked of it

    with pytest.raises(
        ConfigException, match=r"Python, /usr/bin/python3, has no module 'sinksdk': install .*PYSPARK_PYTHON"
    ):
        job.results()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        ("error=2, No such file or directory", "the file or its interpreter does not exist on their hosts"),
        ("error=13, Permission denied", "it is not executable on their hosts"),
        ("error=20, Not a directory", "a parent of its path is a file on their hosts"),
        ("error=8, Exec format error", "it is built for another system"),
    ],
)
def test_an_unusable_python_of_executors_is_a_config_exception(error: str, why: str) -> None:
    chain = JavaThrowable(
        "org.apache.spark.SparkException: Job aborted due to stage failure",
        JavaThrowable(
            f'java.io.IOException: Cannot run program "./env/bin/python": {error}',
            JavaThrowable(f"java.io.IOException: {error}"),
        ),
    )
    with pytest.raises(
        ConfigException, match=rf"executors cannot run \./env/bin/python: {why}.*PYSPARK_PYTHON"
    ):
        failed_job(chain).results()


@pytest.mark.parametrize(
    "error", ["error=11, Resource temporarily unavailable", "error=24, Too many open files"]
)
def test_a_lack_of_resources_of_executors_is_retried(error: str) -> None:
    program = JavaThrowable(f'java.io.IOException: Cannot run program "python3": {error}')
    with pytest.raises(ConnectException, match="Spark job failed") as failed:
        failed_job(program).results()
    assert not isinstance(failed.value, ConfigException)


def failed_job(throwable: JavaThrowable) -> SparkGeneration[Any]:
    job = object.__new__(SparkGeneration)
    job._is_cancelled, job._transformed, job._future = False, None, Future()
    job._future.set_exception(Py4JJavaError(throwable))
    return job


UNAVAILABLE = """
org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times
Traceback (most recent call last):
  File "/a.py", line 1, in _ask
    raise Lost(message)
sinksdk.store.base.Lost: connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/a.py", line 2, in run_task
    store = open_store(url)
sinksdk.store.base.StoreUnavailable: store postgresql://db: opening it got no response for 30 s: refused

\tat org.apache.spark.api.python.BasePythonRunner.compute(PythonRunner.scala:1)
"""


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_an_unavailable_store_of_tasks_is_retried(*, is_cancelled: bool) -> None:
    job = object.__new__(SparkGeneration)
    job._is_cancelled = is_cancelled
    job._future = Future()
    job._transformed = None
    job._future.set_exception(RuntimeError(UNAVAILABLE))

    with pytest.raises(ConnectException) as raised_error:
        job.results()
    assert isinstance(raised_error.value, RetriableException) is not is_cancelled
    assert str(raised_error.value) == (
        "the Spark job was cancelled"
        if is_cancelled
        else "the store is unavailable to the tasks: store "
        "postgresql://db: opening it got no response for 30 s: refused"
    )


def test_a_killed_worker_is_named_with_its_task() -> None:
    # The innermost cause is an EOFException of the socket.
    lost = "Lost task 1.3 in stage 0.0 (TID 5) (10.0.0.7 executor 2): org.apache.spark.SparkException: "
    crash = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    chain = JavaThrowable(
        f"org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 "
        f"times, "
        f"most recent failure: {lost}Python worker exited unexpectedly (crashed)\n\tat org.apache…",
        JavaThrowable(crash, JavaThrowable("java.io.EOFException")),
    )
    for throwable in (chain, JavaThrowable("java.util.concurrent.ExecutionException", chain)):
        said = _first_line(Py4JJavaError(throwable))
        assert said.startswith("Python worker exited unexpectedly (crashed)")
        assert "its process was killed, for example by the kernel for lack of memory" in said
    assert "under task 1:" in _first_line(Py4JJavaError(chain))


def test_pyspark_prints_no_json_for_errors_that_sinksdk_raises() -> None:
    # Regression: the filter read another attribute than the one set, and each bad query was printed twice.
    logger = PySparkLogger.getLogger(_CONTEXT_LOGGERS[0])
    record = logging.LogRecord(logger.name, logging.ERROR, __file__, 1, "AnalysisException", None, None)
    with _quiet():
        assert not logger.filter(record)

    assert logger.filter(record)
