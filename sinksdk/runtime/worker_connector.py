"""Brings a connector into its target state in this process: running, paused, stopped or deleted."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from sinksdk.context import ClosingReason
from sinksdk.control import liveness, registry
from sinksdk.control.info import connector_info
from sinksdk.control.registry import ConnectorDeletedException, ConnectorNotFoundException
from sinksdk.errors import FencedException
from sinksdk.runtime.backoff import PASSING, Waits
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Idle, Openers
from sinksdk.store import StoreUnavailable, read_commits
from sinksdk.store.records import ConnectorRecord
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)


class Driver(Protocol):
    def run(self, *, until_caught_up: bool = False) -> object: ...

    def close(self) -> None:
        """Request the end, from any thread; the running generation flushes, commits and closes first."""


Drivers = Callable[[Environment], Driver]


class WorkerConnector:
    def __init__(
        self,
        environment: Environment,
        connector: str,
        drivers: Drivers | None,
        openers: Openers,
        *,
        first: Driver | None = None,
        brings_config: bool = False,
        stays: bool = False,
        patience: float = math.inf,
    ) -> None:
        self._environment = replace(environment, requests=environment.requests_for(connector))
        self._connector = connector
        # None: the connector is only deleted here.
        self._drivers = drivers
        # The first driver has this process's configuration. A failed driver is not started again.
        self._first = first
        self._brings_config = brings_config
        # The process waits for the operator after a failure, instead of ending.
        self._stays = stays
        self._is_patient = stays or environment.waits is not None
        self._waits = environment.waits or Waits(f"connector {connector}", environment.clock)
        self._signal = environment.signal
        self._idle = Idle(self._environment, connector, openers, patience=patience)

    def close(self) -> None:
        self._signal.request(ClosingReason.SHUTDOWN)

    def run(self, *, until_caught_up: bool = False) -> None:
        self._idle.driver = liveness.register()
        self._environment.tenure.drivers.add(self._idle.driver)
        try:
            with logging_about(connector=self._connector):
                self._run(until_caught_up=until_caught_up)
        finally:
            liveness.deregister(self._idle.driver)

    def _run(self, *, until_caught_up: bool) -> None:
        brings = self._brings_config
        while not self._signal.is_final:
            self._waits.has_ended = False
            try:
                record = None if brings else self._find()
                if self._has_ended(record, until_caught_up=until_caught_up):
                    return
                brings = False
                self._waits.over()
            except ConnectorDeletedException:
                if not brings or not self._is_waited_for():
                    raise
                brings = False
            except PASSING as error:
                if not self._is_patient:
                    raise
                # Once the connector has started, the store has the configuration.
                brings = brings and not self._waits.has_ended
                self._await(error)

    def _find(self) -> ConnectorRecord | None:
        try:
            return registry.find(self._environment.store, self._connector)
        except ConnectorNotFoundException:
            if self._drivers is None:
                return None
            raise

    def _is_waited_for(self) -> bool:
        """Whether the deletion waits for a driver, which runs with the configuration in the store."""
        commits = read_commits(self._environment.store, self._connector).committed
        return any(entry.partly_visible_to is not None for entry in commits.values())

    def _has_ended(self, record: ConnectorRecord | None, *, until_caught_up: bool) -> bool:
        """Apply the target state until it changes; return whether the connector has ended for good."""
        if record is not None and record.deleted:
            has_ended = self._idle.delete(record)
            if self._idle.has_to_run and not has_ended and self._drivers and not self._signal.is_final:
                self._live(self._drivers, record, until_caught_up=True)
            return has_ended
        if self._drivers is None:
            # Another process has deleted the connector; a new connector of this name is not this process's.
            return True
        if record is not None and record.target_state != "RUNNING":
            self._idle.wait(record, record.target_state)
            return False
        reason = self._live(self._drivers, record, until_caught_up=until_caught_up)
        if reason is ClosingReason.DELETE:
            record = registry.find(self._environment.store, self._connector)
            self._idle.cleaned_up = record.incarnation  # the driver has already called ``stop``
            return self._idle.delete(record)
        return reason is None

    def _live(
        self, drivers: Drivers, record: ConnectorRecord | None, *, until_caught_up: bool
    ) -> ClosingReason | None:
        """Run the connector while its target state is RUNNING; None: it has ended."""
        try:
            driver, self._first = self._first, None
            if driver is None or record is not None:
                driver = drivers(replace(self._environment, record=record))
            reason = driver.run(until_caught_up=until_caught_up)
            assert reason is None or isinstance(reason, ClosingReason)  # noqa: S101 - a driver's
        except (FencedException, *PASSING):
            raise
        except Exception as error:
            if not self._stays or record is None:
                raise
            log.exception("connector %s has failed and waits until an operator restarts it", self._connector)
            self._idle.wait(record, "FAILED", "".join(traceback.format_exception(error)))
            return None if self._signal.is_final else ClosingReason.REBALANCE
        return reason

    def _await(self, error: Exception) -> None:
        delay, waiting = self._waits.failed(error)
        if isinstance(error, StoreUnavailable):  # the status cannot be written while the store is unavailable
            self._signal.wait(delay)
            return
        try:
            record = registry.find(self._environment.store, self._connector)
            if not self._stays and self._is_driven_elsewhere():
                self._signal.wait(delay)  # the other driver writes the status until this one takes over
                return
            trace = "".join(traceback.format_exception(error))
            self._idle.wait(record, "RESTARTING", trace, waiting, at_most=delay)
        except (StoreUnavailable, ConnectorNotFoundException):
            self._signal.wait(delay)

    def _is_driven_elsewhere(self) -> bool:
        driver = connector_info(
            self._environment.store, self._connector, self._environment.clock.time()
        ).driver
        return driver not in ("", self._idle.driver)
