"""How a driver takes over from one that still runs: it asks first, so that no progress is lost.

The newest driver wins in any case; that is what fencing is for. But a generation that is fenced in
its middle loses what it has not committed, and a rolling deploy would do that each time. So the
newcomer writes into the running generation's plan that it shall close, with itself as successor. The
tasks see it and flush; the older driver answers when they have ended, and ends itself. A driver that
is dead, or frozen, does not answer; its silence is noticed by its heartbeats, which are watched for change.
"""

from __future__ import annotations

import functools
import logging
import math
import os
import platform
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

from sinksdk.context import ClosingReason
from sinksdk.errors import ConnectException
from sinksdk.runtime.clock import WallClock
from sinksdk.store import Conflict, Store, ask_to_close, table
from sinksdk.store.keys import (
    plan_key,
    status_key,
    task_count_key,
)
from sinksdk.store.records import (
    Closing,
    GenerationPlan,
    TaskCountRecord,
)
from sinksdk.store.reports import (
    ConnectorStatus,
)

log = logging.getLogger(__name__)

SILENCE: Final = 10.0
"""Seconds without a heartbeat (one every 2 s) after which a driver is taken for dead or frozen."""

_MARGIN = 10.0  # seconds until the tasks see that they shall close
_OLD = 30.0  # seconds: a heartbeat this old at first sight is not waited for, whatever the clocks' skew
_LOOK = 0.25  # seconds between two looks into a near store

_STATE, _START_TIME = 0, 19  # fields of /proc/<pid>/stat behind the program's name
_DEAD: Final = "ZX"  # states of a process that has ended and is only waited for

_numbers = count(1)
_here: set[str] = set()  # drivers of this process that run


@functools.cache
def _host() -> str:
    """This machine, as far as process ids mean the same: a container has its own."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = Path("/proc/self/ns/pid").readlink().name
    except OSError:
        return platform.node()  # no Linux, no containers
    return f"{platform.node()}/{zlib.crc32(f'{boot} {space}'.encode()):08x}"


def _started(pid: int) -> str | None:
    """When a process of this host began, in the kernel's ticks since its boot: ids are used again.

    Empty where that cannot be known, None of a process that is not there any more.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None if Path("/proc/self/stat").exists() else _is_there(pid)
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # what stands in brackets is the program's name, blanks and all
    return None if fields[_STATE] in _DEAD else fields[_START_TIME]


def _is_there(pid: int) -> str | None:
    """As :func:`_started`, where there is no ``/proc``."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return ""  # somebody else's process
    return ""


def enter() -> str:
    """A driver of this process begins to run: its name, ``host:pid#number.start``, until :func:`leave`."""
    name = f"{_host()}:{os.getpid()}#{next(_numbers)}.{_started(os.getpid()) or ''}"
    _here.add(name)
    return name


def leave(name: str) -> None:
    """A driver of this process has ended."""
    _here.discard(name)


def is_gone(name: str) -> bool:
    """Whether a driver is known not to run any more. False also where nobody can tell."""
    process, _, number = name.partition("#")
    host, _, pid = process.rpartition(":")
    if host != _host() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return name not in _here
    then, now = number.partition(".")[2], _started(int(pid))
    return now is None or bool(then and now and then != now)


class ConnectorClosingException(ConnectException):
    """A connector that is to be stopped still closes: its last commits would be lost."""


def await_end(
    store: Store, connector: str, *, clock: WallClock, graceful: float, patience: float = math.inf
) -> None:
    """Return once nobody drives a connector that is to be stopped: its tasks have closed and committed.

    Args:
        store: where it is.
        connector: its name.
        clock: time.
        graceful: seconds its tasks have for closing.
        patience: seconds this may take, if that is less than closing may take.

    Raises:
        ConnectorClosingException: its driver lives, and has not ended in time.
        StoreUnavailable: the store does not answer.
    """
    watched = Succession(store, connector, "", clock=clock, wait=lambda _: False, graceful=graceful)
    give_up = clock.now() + min(graceful + _MARGIN, patience)
    while not watched.is_silent():
        if clock.now() >= give_up:
            raise ConnectorClosingException(
                f"connector {connector} is still closing, and its tasks would lose what they commit last; "
                f"try again once it is stopped"
            )
        clock.sleep(max(_LOOK, store.closing_poll / 5))


class Succession:
    """Asks whoever drives a connector to close, and waits for it.

    Args:
        store: where both meet.
        connector: the connector's name.
        driver: the newcomer's name.
        clock: time.
        wait: waits so many seconds; True when the newcomer itself was asked to end meanwhile.
        graceful: seconds the running tasks have for closing.
        is_gone: whether a driver is known not to run any more.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        driver: str,
        *,
        clock: WallClock,
        wait: Callable[[float], bool],
        graceful: float,
        is_gone: Callable[[str], bool] = is_gone,
    ) -> None:
        self._store = store
        self._connector = connector
        self._driver = driver
        self._clock = clock
        self._wait = wait
        self._graceful = graceful
        self._is_gone = is_gone
        self._heartbeat: tuple[str, float] | None = None  # version, and when it was first seen
        self._is_told = False
        self._plan: table.Row[GenerationPlan] | None = None  # as it was read last

    def await_turn(self) -> bool:
        """Return once nothing runs that would lose progress, or nobody answers.

        Returns:
            False when the newcomer was asked to end before it was its turn.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        give_up = self._clock.now() + self._graceful + _MARGIN
        while (running := self._running()) is not None and self._clock.now() < give_up:
            if running.closing is not None and running.closing.answered:
                return True
            if self.is_silent():
                break
            self._tell(running)
            if not _has_successor(running):
                self._ask(running)
            elif self._wait(max(_LOOK, self._store.closing_poll / 5)):
                self._withdraw()
                return False
        return True

    def _withdraw(self) -> None:
        """Nobody takes over after all: a driver that has not answered yet goes on."""
        while (running := self._running()) is not None and running.closing is not None:
            if running.closing.successor != self._driver or running.closing.answered:
                return
            closing = running.closing.model_copy(update={"successor": None})
            if self._replace(running.model_copy(update={"closing": closing})):
                return

    def _running(self) -> GenerationPlan | None:
        """The plan of the generation that runs, if one may be running."""
        count = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
        if count is None or not count.value.planned or count.value.claimed != count.value.planned:
            return None
        key = plan_key(self._connector, count.value.planned)
        self._plan = table.read_again(self._store, key, GenerationPlan, self._plan)
        return self._plan.value if self._plan else None

    def _replace(self, changed: GenerationPlan) -> bool:
        """Write the plan that was read last; False where somebody has written it meanwhile."""
        assert self._plan is not None, "no plan was read"  # noqa: S101 - a caller's mistake
        key = plan_key(self._connector, changed.generation)
        try:
            self._plan = table.write(self._store, key, changed, self._plan.version)
        except Conflict:
            return False
        return True

    def _ask(self, running: GenerationPlan) -> None:
        """Write into its plan that it shall close for us. A reason that stands there already stays."""
        closing = running.closing or Closing(
            reason=ClosingReason.REBALANCE, timeout=self._graceful, asked=self._clock.time()
        )
        asked = closing.model_copy(update={"successor": self._driver})
        if self._replace(running.model_copy(update={"closing": asked})):  # else look again
            ask_to_close(self._store, self._connector, running.generation, asked)

    def is_silent(self) -> bool:
        """Whether the driver is dead or frozen, or has ended."""
        row = table.read(self._store, status_key(self._connector), ConnectorStatus)
        if row is None or row.value.state != "RUNNING" or self._is_gone(row.value.driver):
            return True
        now = self._clock.now()
        if self._heartbeat is None and self._clock.time() - row.value.heartbeat > _OLD:
            return True
        if self._heartbeat is None or self._heartbeat[0] != row.version:
            self._heartbeat = (row.version, now)
        if now - self._heartbeat[1] <= SILENCE:
            return False
        log.warning(
            "connector %s: driver %s has not been heard of for %g s; what it had not committed is read again",
            self._connector,
            row.value.driver,
            SILENCE,
        )
        return True

    def _tell(self, running: GenerationPlan) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning(
                "connector %s: another driver runs generation %d; it is asked to close, for at most %g s",
                self._connector,
                running.generation,
                self._graceful,
            )


def _has_successor(plan: GenerationPlan) -> bool:
    return plan.closing is not None and plan.closing.successor is not None
