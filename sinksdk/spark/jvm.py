"""Spark's JVM: started quietly, so that signals meant for us do not end it; and the errors it hands on."""

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

LOG_CONFIGURATION: Final = Path(__file__).with_name("log4j2.properties")
"""Makes the JVM write each of its errors as one line, which is logged here as ``sinksdk.spark.jvm``."""

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
_GONE: Final = re.compile(r"Could not find (AppClient|CoarseGrainedScheduler)\b")
"""A message was on its way to what had ended with the application: Spark's race, of which nothing comes."""
_DEAD: Final = re.compile(r"Python worker exited unexpectedly(?: \(\w+\))?")
_KILLED_BY: Final = (
    "its process was killed, as by the kernel for want of memory, by a segmentation fault in a library, or "
    "by os._exit"
)
_TASK: Final = re.compile(r"Task (\d+) in stage")

_log = logging.getLogger(__name__)


def launch(conf: Mapping[str, str]) -> JavaGateway:
    """Start the JVM.

    SIGINT, SIGTERM and SIGHUP that reach the whole process group (Ctrl-C, ``timeout``, a closed
    terminal) do not end it, so that tasks can still flush. It ends with this process, however that ends.

    Raises:
        ConfigException: there is no Java, or it is none that Spark runs on.
    """
    from pyspark import SparkConf, errors, java_gateway  # noqa: PLC0415 - its absence is reported by the caller

    _check_java()
    options = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    stream = _ErrorStream()
    try:
        with stream as stderr:
            # pyspark starts it with SIGINT ignored, and a JVM leaves a signal alone that is ignored.
            gateway: JavaGateway = java_gateway.launch_gateway(options, {"stderr": stderr})  # type: ignore[no-untyped-call] # pyspark's
    except errors.PySparkRuntimeError as error:
        raise ConfigException(f"Spark's JVM ended at once. {_JAVA}. It said:\n{stream.said()}") from error
    if gateway.proc is not None:  # under spark-submit the JVM is not ours
        _ignore_signals(gateway)
    return gateway


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not Path(home, "bin", "java").exists():
        raise ConfigException(
            f"JAVA_HOME is {home}, but there is no bin/java in it. {_JAVA}, or unset JAVA_HOME"
        )
    if not home and shutil.which("java") is None:
        raise ConfigException(
            f"there is no java on the PATH. {_JAVA}, and put it on the PATH or set JAVA_HOME"
        )


def _ignore_signals(gateway: JavaGateway) -> None:
    signals = gateway.jvm.sun.misc
    for name in ("TERM", "HUP"):
        signals.Signal.handle(signals.Signal(name), signals.SignalHandler.SIG_IGN)


class JvmSignals:
    """The first signal that a JVM would end on is told to this process instead.

    Under spark-submit the JVM is the process that a ``kill`` or the end of a container reaches, and a Ctrl-C
    reaches it, too: with it all executors would end, before tasks have flushed.

    Args:
        on_signal: called with it, in a thread of its own.
    """

    def __init__(self, gateway: JavaGateway, on_signal: Callable[[signal.Signals], None]) -> None:
        self._gateway = gateway
        self._before: dict[str, Any] = {}
        self._heard: Any = None
        try:
            self._heard = gateway.jvm.java.util.concurrent.LinkedBlockingQueue()
            self._take_over()
        except Exception as error:  # noqa: BLE001 - a Java without java.beans, or one whose signals are others' (-Xrs)
            _log.info("signals that Spark's JVM gets will end it: %s", error)
            self.stop_listening()
            return
        if self._before:
            Thread(target=self._listen, args=(on_signal,), name="jvm-signals", daemon=True).start()

    def stop_listening(self) -> None:
        """Have the JVM do with signals what it did before."""
        with contextlib.suppress(Exception):  # it may have ended
            self._put_back()
            self._heard.add("")

    def _put_back(self) -> None:
        signals = self._gateway.jvm.sun.misc
        for name, handler in self._before.items():
            signals.Signal.handle(signals.Signal(name), handler)

    def _take_over(self) -> None:
        jvm = self._gateway.jvm
        signals = jvm.sun.misc
        # Java calls no Python without another server; this calls the queue's "add" with the signal's "name".
        kind = jvm.java.lang.Class.forName("sun.misc.SignalHandler")
        handler = jvm.java.beans.EventHandler.create(kind, self._heard, "add", "name")
        for name in _SIGNALS:
            number = signals.Signal(name)
            before = signals.Signal.handle(number, handler)
            if before.equals(signals.SignalHandler.SIG_IGN):  # as pyspark and we start a JVM
                signals.Signal.handle(number, before)
            else:
                self._before[name] = before

    def _listen(self, on_signal: Callable[[signal.Signals], None]) -> None:
        with contextlib.suppress(Exception):  # the JVM has ended
            if name := self._heard.take():
                on_signal(signal.Signals[f"SIG{name}"])
                self._put_back()  # the second one has its usual effect


class _ErrorStream:
    """The JVM's stderr: its log is logged here, what Python workers print goes to our own stderr.

    As a context it is the descriptor to start the JVM with. What it says until it has started is kept,
    not shown: chatter if it starts, the reason if it does not.
    """

    def __init__(self) -> None:
        self._before: list[str] = []
        source, self._sink = os.pipe()
        self._source = os.fdopen(source, encoding="utf-8", errors="replace")
        self._thread = Thread(target=self._read, name="spark-stderr", daemon=True)

    def __enter__(self) -> int:
        self._thread.start()
        return self._sink

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            os.write(self._sink, _STARTED.encode())  # behind all that the JVM wrote until now
        os.close(self._sink)  # the JVM has its own copy

    def said(self) -> str:
        """The JVM's output, once it has failed to start."""
        self._thread.join()
        return "".join(self._before).rstrip()

    def _read(self) -> None:
        with self._source:
            for line in self._source:
                if line.endswith(_STARTED):
                    break
                self._before.append(line)
            for line in self._source:
                # Logging or stderr may be gone while the interpreter ends; the JVM must not block on it.
                with contextlib.suppress(ValueError, OSError):
                    pass_on(line)


def pass_on(line: str) -> None:
    """Log a line of Spark's log, or print any other one as it is."""
    if not line.startswith(_FIELD):
        sys.stderr.write(line)
        return
    _, level, source, message, trace = line.rstrip("\n").split(_FIELD, 4)
    lines = trace.split(_LINE)
    number = logging.CRITICAL if level == "FATAL" else logging.getLevelName(level)
    if _GONE.search(f"{message} {lines[0]}"):
        number = logging.DEBUG
    # Of a Python worker's error, what Python says, not that there was one.
    cause = raised("\n".join(lines)) or lines[0]
    _log.log(number, "%s: %s", source, f"{message} ({cause})" if cause else message)
    if len(lines) > 1:
        _log.debug("%s", "\n".join(lines))


def raised(text: str) -> str | None:
    """What a Python worker raised last, by the first line of what it says; None without a Python stack trace.

    An exception's message may have several lines, and end with a link to a manual.
    """
    _, begun, rest = text.rpartition(_TRACE)
    for line in rest.splitlines() if begun else ():
        if line.startswith(_JAVA_FRAME):
            break
        if line and not line[0].isspace():
            return line
    return None


def data_error(text: str) -> str | None:
    """The first line of Spark's error about a value (ANSI casts, divisions by zero), if it is one.

    The same value has the same error again. SQL's classes say so: 22 is "data exception", P0001 is raised by
    the query itself.
    """
    found = _CONDITION.search(text)
    if raised(text) is not None or found is None:
        return None
    if (state := _SQLSTATE.search(text)) is None or not state[1].startswith(("22", "P0001")):
        return None
    return text[found.start() :].splitlines()[0]


def failed_task(error: BaseException | None) -> int | None:
    """Number of the task that has failed a job, if Spark tells it: in the error, or in the one around it."""
    while error is not None:
        java = getattr(error, "java_exception", None)
        if found := _TASK.search(str(error) if java is None else str(java.getMessage())):
            return int(found[1])
        error = error.__cause__ or error.__context__
    return None


def dead_worker(error: BaseException) -> str | None:
    """What Spark says of a Python process that died under a task, and of which task; None: none did.

    The innermost cause is an EOFException of the socket to the process, which says nothing.
    """
    if (found := _in_causes(error, _DEAD)) is None:
        return None
    task = failed_task(error)
    where = "" if task is None else f" under task {task}"
    return f"{found[0].strip()}{where}: {_KILLED_BY}"


def _in_causes(error: BaseException, pattern: re.Pattern[str]) -> re.Match[str] | None:
    """The first match in an error's message or in those of its Java causes, the outermost first."""
    cause = getattr(error, "java_exception", None)
    if cause is None:
        return pattern.search(str(error))
    while cause is not None:
        if found := pattern.search(str(cause.toString())):
            return found
        cause = cause.getCause()
    return None


def unavailable_store(text: str) -> str | None:
    """The message of a worker's StoreUnavailable, if it has failed with that."""
    error = raised(text) or ""
    return error.removeprefix(_UNAVAILABLE) if error.startswith(_UNAVAILABLE) else None


def missing_module(text: str) -> str | None:
    """The module of a worker's ModuleNotFoundError, if it has failed with that."""
    found = _MISSING.match(raised(text) or "")
    return found[1] if found else None


def unusable_program(error: BaseException) -> tuple[str, str] | None:
    """The program that executors could not start and the reason, if that failed the job and will again.

    The innermost cause is an IOException with the number of the error and without the program.
    """
    found = _in_causes(error, _PROGRAM)
    why = _UNUSABLE.get(int(found[2])) if found else None
    return (found[1], why) if found and why else None


_PROGRAM: Final = re.compile(r'Cannot run program "([^"]+)".*error=(\d+)')
_UNUSABLE: Final = {
    errno.ENOENT: "there is no such file on their hosts, or not the interpreter that it names",
    errno.EACCES: "their hosts do not let them execute it (Permission denied): it lacks the permission, "
    "which a zip archive may lose, is a folder, or is on a file system without 'exec'",
    errno.ENOTDIR: "a part of its path is a file on their hosts",
    errno.ENOEXEC: "it is not a program for their hosts",
    errno.ELOOP: "its path has too many symbolic links on their hosts",
}
"""Numbers of errors that no further attempt changes; others are a lack of processes, files or memory."""


def each_of(items: Any) -> Iterator[Any]:
    """Yield the items of a sequence of Scala's."""
    return (items.apply(number) for number in range(items.size()))
