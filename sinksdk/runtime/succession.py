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
import os
import platform
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Final

from sinksdk.context import ClosingReason
from sinksdk.runtime.clock import WallClock
from sinksdk.store import Conflict, Store, table
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


def enter() -> str:
    """A driver of this process begins to run: its name, ``host:pid#number``, until :func:`leave`."""
    name = f"{_host()}:{os.getpid()}#{next(_numbers)}"
    _here.add(name)
    return name


def leave(name: str) -> None:
    """A driver of this process has ended."""
    _here.discard(name)


def is_gone(name: str) -> bool:
    """Whether a driver is known not to run any more. False also where nobody can tell."""
    process, _, _ = name.partition("#")
    host, _, pid = process.rpartition(":")
    if host != _host() or not pid.isdigit():
        return False
    if int(pid) == os.getpid():
        return name not in _here
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # somebody else's process
    return False


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
            if self._is_silent():
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
            key = plan_key(self._connector, running.generation)
            try:
                table.write(self._store, key, running.model_copy(update={"closing": closing}), self._version)
            except Conflict:
                continue
            return

    def _running(self) -> GenerationPlan | None:
        """The plan of the generation that runs, if one may be running."""
        count = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
        if count is None or not count.value.planned or count.value.claimed != count.value.planned:
            return None
        plan = table.read(self._store, plan_key(self._connector, count.value.planned), GenerationPlan)
        self._version = plan.version if plan else ""
        return plan.value if plan else None

    def _ask(self, running: GenerationPlan) -> None:
        """Write into its plan that it shall close for us. A reason that stands there already stays."""
        closing = running.closing or Closing(
            reason=ClosingReason.REBALANCE, timeout=self._graceful, asked=self._clock.time()
        )
        asked = running.model_copy(update={"closing": closing.model_copy(update={"successor": self._driver})})
        try:
            table.write(self._store, plan_key(self._connector, running.generation), asked, self._version)
        except Conflict:
            return  # written meanwhile: look again

    def _is_silent(self) -> bool:
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
