"""Runs all connectors of one store in one process, as Kafka Connect's worker does."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from sinksdk.control import registry
from sinksdk.control.info import connector_info
from sinksdk.control.registry import ConnectorNotFoundException
from sinksdk.engine.clock import SystemWallClock
from sinksdk.errors import ConnectException, FencedException
from sinksdk.runtime.worker_connector import Driver, WorkerConnector
from sinksdk.store import Store, StoreUnavailable
from sinksdk.support.logs import Outage
from sinksdk.support.threads import has_ended, start_call

log = logging.getLogger(__name__)

_CONNECTORS_POLL = 1.0  # seconds between checks for new connectors
_STOP_POLL = 0.1  # seconds between checks whether all have stopped
_RESTART_DELAY = 10.0  # seconds until a connector that has stopped here is started again
_PATIENCE = 60.0  # seconds for closing, if the connector's configuration cannot be read
_GRACE = 10.0  # seconds beyond the connectors' timeouts until the process ends

Workers = Callable[[str], WorkerConnector]


class ConnectorRunner:
    """Runs a driver in a thread, so that a hang in an author's code does not block other connectors."""

    def __init__(self, driver: Driver, *, until_caught_up: bool = False) -> None:
        self.close = driver.close
        self.ended_at: float | None = None
        self._ended = start_call(partial(driver.run, until_caught_up=until_caught_up), "driver")

    def await_termination(self, timeout: float | None = None) -> bool:
        return has_ended(self._ended, timeout)


class ConnectWorker:
    def __init__(self, store: Store, workers: Workers) -> None:
        self._store = store
        self._workers = workers
        self._clock = SystemWallClock()
        self._runners: dict[str, ConnectorRunner] = {}
        self._closed = threading.Event()
        self._outage = Outage(log, "listing connectors")
        self._damages: dict[str, Outage] = {}

    @property
    def running(self) -> list[str]:
        return sorted(name for name, runner in list(self._runners.items()) if runner.ended_at is None)

    def close(self) -> None:
        self._closed.set()

    def run(self) -> list[str]:
        """Run all connectors until :meth:`close`; return those that hang in their abandoned threads."""
        while not self._closed.wait(_CONNECTORS_POLL):
            try:
                self._start_free_connectors()
                self._outage.worked()
            except ConnectException as error:
                self._outage.failed("cannot list connectors, retrying: %s", error)
        for runner in self._runners.values():
            runner.close()
        return self._await_ends()

    def _start_free_connectors(self) -> None:
        self._note_ends()
        for name in registry.names(self._store):
            try:
                is_free = self._is_free(name)
            except StoreUnavailable:
                raise
            except ConnectException as error:  # only this connector's records are damaged
                self._damages.setdefault(name, Outage(log, f"starting connector {name}")).failed(
                    "connector %s cannot be started: %s", name, error
                )
                continue
            self._damages.pop(name, None)
            if is_free:
                log.info("connector %s: starting in this process", name)
                self._runners[name] = ConnectorRunner(self._workers(name))

    def _note_ends(self) -> None:
        for name, runner in self._runners.items():
            if runner.ended_at is None and _has_ended(name, runner):
                runner.ended_at = self._clock.now()

    def _is_free(self, name: str) -> bool:
        last = self._runners.get(name)
        if last is not None and (last.ended_at is None or self._clock.now() < last.ended_at + _RESTART_DELAY):
            return False
        try:
            # A driver in another process is replaced once its heartbeats stop.
            return not connector_info(self._store, name, self._clock.time()).driver
        except ConnectorNotFoundException:
            return False  # the connector was deleted since the names were listed

    def _await_ends(self) -> list[str]:
        patience = max(map(self._graceful_of, self.running), default=0.0) + _GRACE
        give_up = self._clock.now() + patience
        while self.running and self._clock.now() < give_up:
            self._clock.sleep(_STOP_POLL)
            self._note_ends()
        # The next driver reads again what the abandoned connectors have not committed.
        for name in self.running:
            log.error("connector %s did not stop within %g s; its thread is abandoned", name, patience)
        return self.running

    def _graceful_of(self, name: str) -> float:
        try:
            return registry.graceful_timeout(registry.find(self._store, name))
        except ConnectException:
            return _PATIENCE


def _has_ended(name: str, runner: ConnectorRunner) -> bool:
    try:
        return runner.await_termination(timeout=0)
    except (FencedException, ConnectorNotFoundException) as error:
        log.warning("connector %s no longer runs in this process: %s", name, error)
    except BaseException:  # a connector's SystemExit must not end the others
        log.exception("connector %s has failed", name)
    return True
