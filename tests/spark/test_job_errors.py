"""What is said of a Spark job that failed as a whole."""

from __future__ import annotations

from sinksdk.spark.generation_job import _first_line


class JavaThrowable:
    """As Py4J shows one."""

    def __init__(self, text: str, cause: JavaThrowable | None = None) -> None:
        self._text = text
        self._cause = cause

    def toString(self) -> str:  # noqa: N802 - Java's
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
