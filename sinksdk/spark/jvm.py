"""Starts Spark's JVM, and reads its signals, log and errors.

pyspark's JVM ends on a SIGTERM before tasks have flushed, and hides causes in Java stack traces.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

from sinksdk.errors import ConfigException
from sinksdk.store import StoreUnavailable

if TYPE_CHECKING:
    from py4j.java_gateway import JavaGateway

# Makes the JVM write each error as one line, which this module logs as ``sinksdk.spark.jvm``.
LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")

_FIELD, _LINE = "\x1f", "\x1e"
_STARTED = "\x1d\n"
_JAVA = "Spark needs Java 17 or 21: install one (for example the package openjdk-17-jre-headless)"

_SIGNALS: Final = ("INT", "TERM", "HUP")

_TRACE: Final = "Traceback (most recent call last):"
_JAVA_FRAME: Final = "\tat "
_UNAVAILABLE: Final = f"{StoreUnavailable.__module__}.{StoreUnavailable.__qualname__}: "
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")
_CONDITION: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\]")
_SQLSTATE: Final = re.compile(r"SQLSTATE: (\w{5})")
# Spark logs this error, which is harmless, when a message arrives after the application has stopped.
_GONE: Final = re.compile(r"Could not find (AppClient|CoarseGrainedScheduler)\b")
_DEAD: Final = re.compile(r"Python worker exited unexpectedly(?: \(\w+\))?")
_KILLED_BY: Final = (
    "its process was killed, for example by the kernel for lack of memory, by a segmentation fault in a "
    "library, or by os._exit"
)
_TASK: Final = re.compile(r"Task (\d+) in stage")

_log = logging.getLogger(__name__)


def launch(conf: Mapping[str, str]) -> JavaGateway:
    from pyspark import SparkConf, errors, java_gateway  # noqa: PLC0415 - its absence is reported by the caller

    _check_java()
    options = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    stream = _ErrorStream()
    try:
        with stream as stderr:
            # pyspark starts the JVM with SIGINT ignored, and a JVM keeps ignored signals ignored.
            gateway: JavaGateway = java_gateway.launch_gateway(options, {"stderr": stderr})  # type: ignore[no-untyped-call] # pyspark's
    except errors.PySparkRuntimeError as error:
        raise ConfigException(
            f"Spark's JVM ended at once. {_JAVA}. Its output:\n{stream.output()}"
        ) from error
    if gateway.proc is not None:  # under spark-submit the JVM is the parent process
        _ignore_signals(gateway)
    return gateway


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():
        raise ConfigException(f"JAVA_HOME is {home}, but has no bin/java. {_JAVA}, or unset JAVA_HOME")
    if not home and shutil.which("java") is None:
        raise ConfigException(f"java is not on the PATH. {_JAVA}, and add it to the PATH or set JAVA_HOME")


def _ignore_signals(gateway: JavaGateway) -> None:
    # Ctrl-C or a closed terminal must not end the JVM before tasks have flushed; it ends with this process.
    signals = gateway.jvm.sun.misc
    for name in ("TERM", "HUP"):
        signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)


class JvmSignals:
    """Catches the first signal that would end a JVM, and calls ``on_signal`` in a thread of its own."""

    def __init__(self, gateway: JavaGateway, on_signal: Callable[[signal.Signals], None]) -> None:
        self._gateway = gateway
        self._before: dict[str, Any] = {}
        self._queue: Any = None
        try:
            # Under spark-submit signals reach the JVM, and the executors would end with the JVM.
            self._queue = gateway.jvm.java.util.concurrent.LinkedBlockingQueue()
            self._take_over()
        except Exception as error:  # noqa: BLE001 - Java without java.beans, or with -Xrs
            _log.info("cannot catch signals of Spark's JVM, so one ends the JVM at once: %s", error)
            self.stop_listening()
            return
        if self._before:
            Thread(target=self._listen, args=(on_signal,), name="jvm-signals", daemon=True).start()

    def stop_listening(self) -> None:
        with contextlib.suppress(Exception):  # the JVM may have ended
            self._restore_handlers()
            self._queue.add("")

    def _restore_handlers(self) -> None:
        signals = self._gateway.jvm.sun.misc
        for name, handler in self._before.items():
            signals.Signal.handle(signals.Signal(name), handler)

    def _take_over(self) -> None:
        jvm = self._gateway.jvm
        signals = jvm.sun.misc
        # Java cannot call Python: its handler calls the queue's "add" with the signal's "name".
        kind = jvm.java.lang.Class.forName("sun.misc.SignalHandler")
        handler = jvm.java.beans.EventHandler.create(kind, self._queue, "add", "name")
        for name in _SIGNALS:
            number = signals.Signal(name)
            before = signals.Signal.handle(number, handler)
            if before.equals(signals.SignalHandler.SIG_IGN):  # ignored since the start of the JVM
                signals.Signal.handle(number, before)
            else:
                self._before[name] = before

    def _listen(self, on_signal: Callable[[signal.Signals], None]) -> None:
        with contextlib.suppress(Exception):  # the JVM has ended
            if name := self._queue.take():
                on_signal(signal.Signals[f"SIG{name}"])
                self._restore_handlers()  # the second one has its usual effect


class _ErrorStream:
    """The JVM's stderr: logs Spark's log lines, and passes on the output of Python workers."""

    def __init__(self) -> None:
        # The output is shown only if the start of the JVM fails.
        self._before: list[str] = []
        source, self._sink = os.pipe()
        self._source = os.fdopen(source, encoding="utf-8", errors="replace")
        self._thread = Thread(target=self._read, name="spark-stderr", daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return self._sink

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            # Marks the end of the output that the JVM has written until now.
            os.write(self._sink, _STARTED.encode())
        os.close(self._sink)  # the JVM keeps its own copy open

    def output(self) -> str:
        self._thread.join()
        return "".join(self._before).rstrip()

    def _read(self) -> None:
        with self._source:
            for line in self._source:
                if line.endswith(_STARTED):
                    break
                self._before.append(line)
            for line in self._source:
                # Logging may be closed at the interpreter's end; the JVM must not block on a full pipe.
                with contextlib.suppress(ValueError, OSError):
                    log_line(line)


def log_line(line: str) -> None:
    if not line.startswith(_FIELD):
        sys.stderr.write(line)
        return
    _, level, source, message, trace = line.rstrip("\n").split(_FIELD, 4)
    lines = trace.split(_LINE)
    number = logging.CRITICAL if level == "FATAL" else logging.getLevelName(level)
    if _GONE.search(f"{message} {lines[0]}"):
        number = logging.DEBUG
    # Python's message says more than Spark's about the error of a Python worker.
    cause = raised("\n".join(lines)) or lines[0]
    _log.log(number, "%s: %s", source, f"{message} ({cause})" if cause else message)
    if len(lines) > 1:
        _log.debug("%s", "\n".join(lines))


def raised(text: str) -> str | None:
    """Return the first line of the exception of a Python worker; None without a Python stack trace."""
    _, begun, rest = text.rpartition(_TRACE)
    for line in rest.splitlines() if begun else ():
        if line.startswith(_JAVA_FRAME):
            break
        # The lines after the first one are left out: SQLAlchemy's end with a link to its manual.
        if line and not line[0].isspace():
            return line
    return None


def data_error(text: str) -> str | None:
    """Return the first line of Spark's error about a value, which occurs again for the same value."""
    found = _CONDITION.search(text)
    if raised(text) is not None or found is None:
        return None
    # Class 22 is "data exception" (ANSI casts, divisions by zero); the query raises P0001.
    if (state := _SQLSTATE.search(text)) is None or not state[1].startswith(("22", "P0001")):
        return None
    return text[found.start() :].splitlines()[0]


def failed_task(error: BaseException | None) -> int | None:
    while error is not None:
        java = getattr(error, "java_exception", None)
        if found := _TASK.search(str(error) if java is None else str(java.getMessage())):
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


def dead_worker(error: BaseException) -> str | None:
    # Outer causes are searched too, because the innermost one is only an EOFException of the worker's socket.
    if (found := _in_causes(error, _DEAD)) is None:
        return None
    task = failed_task(error)
    where = "" if task is None else f" under task {task}"
    return f"{found[0].strip()}{where}: {_KILLED_BY}"


def _in_causes(error: BaseException, pattern: re.Pattern[str]) -> re.Match[str] | None:
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return pattern.search(str(error))
    while cause is not None:
        if found := pattern.search(str(cause.toString())):
            return found
        cause = cause.getCause()
    return None


def unavailable_store(text: str) -> str | None:
    error = raised(text) or ""
    return error.removeprefix(_UNAVAILABLE) if error.startswith(_UNAVAILABLE) else None


def missing_module(text: str) -> str | None:
    found = _MISSING.match(raised(text) or "")
    return found[1] if found else None


def unusable_program(error: BaseException) -> tuple[str, str] | None:
    # Outer causes are searched too, because the innermost one is an IOException that does not name the
    # program.
    found = _in_causes(error, _PROGRAM)
    why = _UNUSABLE.get(int(found[2])) if found else None
    return (found[1], why) if found and why else None


_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)".*error=(\d+)')
# Permanent errors; others mean a lack of processes, files or memory.
_UNUSABLE: Final = {
    errno.ENOENT: "the file or its interpreter does not exist on their hosts",
    errno.EACCES: "it is not executable on their hosts (Permission denied): "
    "the permission is missing, as after a zip archive, or it is a folder, or its file system is mounted "
    "without 'exec'",
    errno.ENOTDIR: "a parent of its path is a file on their hosts",
    errno.ENOEXEC: "it is built for another system",
    errno.ELOOP: "its path has too many symbolic links on their hosts",
}


def each_of(items: Any) -> Iterator[Any]:
    return (items.apply(number) for number in range(items.size()))
