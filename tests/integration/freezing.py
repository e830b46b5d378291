"""Stop processes with SIGSTOP, as on a machine that sleeps, and continue them."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tests.integration.archive_site import descendants

_PATIENCE = 30.0  # seconds until a process that does not stop is an error

Pids = Callable[[], Collection[int]]


def everything_of(process: subprocess.Popen[str]) -> Pids:
    return lambda: [process.pid, *(pid for pid, _ in descendants(process.pid))]


def python_workers_of(process: subprocess.Popen[str]) -> Pids:
    def workers() -> list[int]:
        daemons = [pid for pid, command in descendants(process.pid) if "pyspark.worker" in command]
        forked = {child for daemon in daemons for child, _ in descendants(daemon)}
        return [pid for pid in daemons if pid in forked]

    return workers


def executors_of(process: subprocess.Popen[str]) -> Pids:
    def executors() -> list[int]:
        jvms = [pid for pid, command in descendants(process.pid) if "CoarseGrainedExecutorBackend" in command]
        return [*jvms, *(child for jvm in jvms for child, _ in descendants(jvm))]

    return executors


def executor_of(driver: subprocess.Popen[str], worker: int) -> Pids:
    def executor() -> list[int]:
        jvms = [pid for pid, command in descendants(driver.pid) if "CoarseGrainedExecutorBackend" in command]
        groups = [[jvm, *(child for child, _ in descendants(jvm))] for jvm in jvms]
        return next((group for group in groups if worker in group), [])

    return executor


def freeze(store: Path, pids: Pids) -> list[int]:
    """Stop processes, except those that hold a lock of the store's file: SQLite would let no other process write.

    Returns:
        The processes that were stopped.
    """
    deadline = time.monotonic() + _PATIENCE
    while True:
        frozen = _stop(pids)
        if _is_writable(store):
            return frozen
        wake(frozen)
        assert time.monotonic() < deadline, "the store is never writable while they are frozen"
        time.sleep(0.02)


def wake(pids: Collection[int]) -> None:
    _signal(pids, signal.SIGCONT)


def stop(pid: int) -> None:
    # A process may still respond until each of its threads has stopped.
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + _PATIENCE
    while not all(map(_has_stopped, Path(f"/proc/{pid}/task").iterdir())):
        assert time.monotonic() < deadline, f"process {pid} does not stop"
        time.sleep(0.01)


def is_frozen(pid: int) -> bool:
    return _has_stopped(Path(f"/proc/{pid}"))


def _has_stopped(process: Path) -> bool:
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return True
    return state in "TZX"


@contextlib.contextmanager
def cleared_away(started: Collection[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in started:
            if process.poll() is None:
                _signal(everything_of(process)(), signal.SIGKILL)
            process.communicate()


def _stop(pids: Pids) -> list[int]:
    stopped: set[int] = set()
    while new := set(pids()) - stopped:
        _signal(new, signal.SIGSTOP)
        stopped |= new
    deadline = time.monotonic() + _PATIENCE
    while not all(map(is_frozen, stopped)):
        assert time.monotonic() < deadline, "a process does not stop"
        time.sleep(0.01)
    assert stopped, "there is nothing to stop"
    return sorted(stopped)


def _is_writable(store: Path) -> bool:
    connection = sqlite3.connect(store, timeout=0.1, isolation_level=None)
    with contextlib.closing(connection):
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        connection.execute("ROLLBACK")
        return True


def _signal(pids: Collection[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
