"""What is said of a Spark job that failed as a whole."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from sinksdk import ConfigException, ConnectException, RetriableException
from sinksdk.spark.generation_job import SparkGeneration, _first_line
from sinksdk.spark.jvm import data_error, failed_task, missing_module, raised


class JavaThrowable:
    """As Py4J shows one."""

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
    """Whose text always begins with the same sentence."""

    def __init__(self, java_exception: JavaThrowable) -> None:
        super().__init__("An error occurred while calling o661.collectToPython.\n: java.lang.…")
        self.java_exception = java_exception


def test_of_javas_errors_the_innermost_cause_is_told() -> None:
    """The first line of what Py4J says is the same whatever happened."""
    innermost = JavaThrowable(
        "org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: x"
    )
    error = Py4JJavaError(
        JavaThrowable("java.util.concurrent.ExecutionException", JavaThrowable("…", innermost))
    )

    assert _first_line(error) == (
        "org.apache.kafka.common.config.ConfigException: Invalid url in bootstrap.servers: x"
    )


def test_of_other_errors_the_first_line_is_told() -> None:
    """Spark's own go on with plans and stack traces."""
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


def test_of_a_workers_error_what_it_raised_is_told() -> None:
    """Not that one was thrown, with nothing behind the colon."""
    assert _first_line(RuntimeError(MISSING)) == "ModuleNotFoundError: No module named 'sinksdk'"


def test_what_goes_on_for_lines_is_told_by_its_first() -> None:
    """SQLAlchemy ends each error with a link to its manual."""
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
def test_an_error_about_a_value_is_told_from_others(text: str, line: str | None) -> None:
    """By SQL's classes: a cast fails again for the same value, and memory may be there later."""
    assert data_error(text) == line


def test_the_task_that_failed_a_job_is_in_the_error_around() -> None:
    """Spark raises the cause; the error about the job is its context."""
    cause = ValueError("[DIVIDE_BY_ZERO]")
    cause.__context__ = RuntimeError("Job aborted due to stage failure: Task 3 in stage 7.0 failed 1 times")
    assert failed_task(cause) == 3
    assert failed_task(ValueError("another")) is None


@pytest.mark.parametrize(("text", "module"), [(MISSING, "sinksdk"), ("ModuleNotFoundError", None)])
def test_a_module_that_executors_lack_is_known(text: str, module: str | None) -> None:
    """The commonest mistake on a cluster."""
    assert missing_module(text) == module


def test_a_job_whose_executors_lack_a_module_is_a_wrong_configuration() -> None:
    """It names the module, their Python, and what to do; six more attempts would do no better."""
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
        ("error=2, No such file or directory", "there is no such file on their hosts"),
        ("error=13, Permission denied", "their hosts do not let them execute it"),
        ("error=20, Not a directory", "a part of its path is a file on their hosts"),
        ("error=8, Exec format error", "it is not a program for their hosts"),
    ],
)
def test_a_job_whose_executors_cannot_run_their_python_is_a_wrong_configuration(error: str, why: str) -> None:
    """It names the program and the reason; more attempts would do no better."""
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
def test_a_job_whose_executors_lack_resources_for_a_python_is_tried_again(error: str) -> None:
    """Another attempt may have them: a failure, no wrong configuration."""
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
def test_a_job_whose_tasks_got_no_answer_from_their_store_is_tried_again(*, is_cancelled: bool) -> None:
    """An outage passes by itself, and is nobody's failure; a job that was cancelled is only that."""
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
        else "its tasks cannot work: store postgresql://db: opening it got no response for 30 s: refused"
    )


def test_a_killed_worker_is_told_in_sparks_words_with_its_task() -> None:
    """os._exit, a segmentation fault, no memory: not the EOFException of the socket, which comes last."""
    lost = "Lost task 1.3 in stage 0.0 (TID 5) (10.0.0.7 executor 2): org.apache.spark.SparkException: "
    crash = "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)"
    chain = JavaThrowable(
        f"org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 0.0 failed 4 times, "
        f"most recent failure: {lost}Python worker exited unexpectedly (crashed)\n\tat org.apache…",
        JavaThrowable(crash, JavaThrowable("java.io.EOFException")),
    )
    for throwable in (chain, JavaThrowable("java.util.concurrent.ExecutionException", chain)):
        said = _first_line(Py4JJavaError(throwable))
        assert said.startswith("Python worker exited unexpectedly (crashed)")
        assert "its process was killed, as by the kernel for want of memory" in said
    assert "under task 1:" in _first_line(Py4JJavaError(chain))
