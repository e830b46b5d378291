"""Whether a connector's driver is alive: by its process on this host, otherwise by its heartbeats."""

from __future__ import annotations

import functools
import logging
import math
import os
import platform
import zlib
from itertools import count
from pathlib import Path
from typing import Final

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.store import Store, table
from sinksdk.store.keys import status_key
from sinksdk.store.reports import ConnectorStatus

log = logging.getLogger(__name__)

SILENCE: Final = 10.0  # seconds without a heartbeat (one every 3 s) after which a driver counts as dead

MARGIN: Final = 10.0  # seconds until tasks see a request to close

POLL_INTERVAL: Final = 0.25  # seconds between two reads of a store with fast requests

_OLD = 30.0  # seconds: a heartbeat older than this at the first read means a dead driver

_STATE, _START_TIME = 0, 19  # fields of /proc/<pid>/stat behind the program's name
_DEAD: Final = "ZX"  # states of a process that has ended but that its parent has not waited for

_numbers = count(1)
_here: set[str] = set()  # names of running drivers in this process


@functools.cache
def _host() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        # Each container has process ids of its own.
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return platform.node()  # without Linux's /proc there are no containers
    return f"{platform.node()}/{zlib.crc32(f'{boot} {space}'.encode()):08x}"


def _started(pid: int) -> str | None:
    """Return a process's start time in ticks since boot, since process ids are reused.

    Empty if unknown, None if the process does not exist.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _is_there(pid)
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the brackets hold the program's name, which may contain blanks
    return None if fields[_STATE] in _DEAD else fields[_START_TIME]


def _is_there(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""  # the process belongs to another user
    return ""


def register() -> str:
    """Register a driver of this process; return its name, ``host:pid#number.start``."""
    name = f"{_host()}:{os.getpid()}#{next(_numbers)}.{_started(os.getpid()) or ''}"
    _here.add(name)
    return name


def deregister(name: str) -> None:
    _here.discard(name)


def is_gone(name: str) -> bool:
    """Whether a driver certainly does not run any more."""
    process, _, number = name.partition("#")
    host, _, pid = process.rpartition(":")
    if host != _host() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return name not in _here
    then, now = number.partition(".")[2], _started(int(pid))
    return now is None or bool(then and now and then != now)


class ConnectorClosingException(ConnectException):
    """A connector is still closing; its last commits would be lost."""


class Heartbeats:
    def __init__(self, store: Store, connector: str, clock: WallClock) -> None:
        self._store = store
        self._connector = connector
        self._clock = clock
        self._heartbeat: tuple[str, float] | None = None  # version, and when it was first seen

    def are_silent(self) -> bool:
        """Whether the driver is dead, frozen or stopped."""
        row = table.read(self._store, status_key(self._connector), ConnectorStatus)
        if row is None or row.value.state != "RUNNING" or is_gone(row.value.driver):
            return True
        now = self._clock.now()
        # This comparison depends on the clocks of two machines; later heartbeats are only compared with each
        # other.
        if self._heartbeat is None and self._clock.time() - row.value.heartbeat > _OLD:
            return True
        if self._heartbeat is None or self._heartbeat[0] != row.version:
            self._heartbeat = (row.version, now)
        if now - self._heartbeat[1] <= SILENCE:
            return False
        log.warning(
            "connector %s: driver %s has sent no heartbeat for %g s; its uncommitted records are read again",
            self._connector,
            row.value.driver,
            SILENCE,
        )
        return True


def await_end(
    store: Store, connector: str, *, clock: WallClock, graceful: float, patience: float = math.inf
) -> None:
    """Wait until a stopped connector's tasks have closed and committed.

    Args:
        graceful: seconds that the tasks have for closing.
        patience: seconds to wait, if fewer than closing may take.
    """
    heartbeats = Heartbeats(store, connector, clock)
    give_up = clock.now() + min(graceful + MARGIN, patience)
    while not heartbeats.are_silent():
        if clock.now() >= give_up:
            raise ConnectorClosingException(
                f"connector {connector} is still closing, and its tasks would lose their last commits; "
                f"try again once it has stopped"
            )
        clock.sleep(max(POLL_INTERVAL, store.closing_poll / 5))
