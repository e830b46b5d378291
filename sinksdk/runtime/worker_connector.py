"""One connector's life in this process: run, paused, stopped, failed, deleted, as its operator wants it."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector, ConnectorIdentity
from sinksdk.context import ClosingReason
from sinksdk.errors import ConnectException, FencedException
from sinksdk.runtime import registry
from sinksdk.runtime.background import Background, in_a_thread
from sinksdk.runtime.clock import SystemWallClock, WallClock
from sinksdk.runtime.deletion import remove, stop_connector
from sinksdk.runtime.runner import Driver
from sinksdk.runtime.status import State, StatusKeeper
from sinksdk.runtime.succession import enter, is_gone, leave
from sinksdk.runtime.supervisor import ClosingSignal
from sinksdk.runtime.wishes import Wishes
from sinksdk.store import Store, StoreRefused, StoreUnavailable, identify
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)

Drivers = Callable[[ConnectorRecord | None, Wishes], Driver]
"""Makes what runs a connector: as its record says, or (None) with the configuration this process brings.

Raises ConfigException when the configuration cannot work."""

Connectors = Callable[[ConnectorRecord], tuple[Connector, ConnectorConfig]]
"""Makes a connector that is deleted and does not run, with its configuration. Raises ConfigException."""


class WorkerConnector:
    """Follows what is wanted of a connector, for as long as it is this process's.

    Args:
        store: where that stands.
        connector: the connector's name.
        drivers: make what runs it.
        connectors: make one to be deleted.
        brings_config: whether this process brings the connector's configuration; else the store has it.
        stays: whether it goes on when the connector has failed, and waits for its operator; else it ends.
        signal: asks for the end.
        clock: time.
        background: runs what may hang.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        drivers: Drivers,
        connectors: Connectors,
        *,
        brings_config: bool = False,
        stays: bool = False,
        signal: ClosingSignal | None = None,
        clock: WallClock | None = None,
        background: Background = in_a_thread,
    ) -> None:
        self._store = store
        self._connector = connector
        self._drivers = drivers
        self._connectors = connectors
        self._brings_config = brings_config
        self._stays = stays
        self._signal = signal or ClosingSignal()
        self._clock = clock or SystemWallClock()
        self._background = background
        self._wishes = Wishes(store, connector, self._clock)
        self._name = ""

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs flushes, commits and closes first. From any thread or signal handler."""
        self._signal.ask(reason)

    def run(self, *, until_caught_up: bool = False) -> None:
        """Run until :meth:`close`, until the connector is deleted, or until it has caught up.

        Raises:
            FencedException: it is another process's now.
            Exception: what made it fail, unless it stays.
        """
        self._name = enter()
        try:
            self._run(until_caught_up=until_caught_up)
        finally:
            leave(self._name)

    def _run(self, *, until_caught_up: bool) -> None:
        record = None if self._brings_config else registry.find(self._store, self._connector)
        while not self._signal.is_final:
            if record is not None and record.deleted:
                self._delete(record)
                return
            if record is None or record.target_state == "RUNNING":
                reason = self._live(record, until_caught_up=until_caught_up)
                if reason is None:
                    return
                if reason is ClosingReason.DELETE:
                    remove(self._store, self._connector)  # the driver has stopped it
                    return
            else:
                self._idle(record, record.target_state)
            record = registry.find(self._store, self._connector)

    def _live(self, record: ConnectorRecord | None, *, until_caught_up: bool) -> ClosingReason | None:
        """Run it as RUNNING. None: it has come to its end, and nobody wants anything else of it."""
        try:
            reason = self._drivers(record, self._wishes).run(until_caught_up=until_caught_up)
            assert reason is None or isinstance(reason, ClosingReason)  # noqa: S101 - a driver's
        except FencedException:
            raise
        except Exception:
            if not self._stays:
                raise
            log.exception("connector %s has failed; it waits for its operator", self._connector)
            self._idle(
                record or registry.find(self._store, self._connector), "FAILED", traceback.format_exc()
            )
            return None if self._signal.is_final else ClosingReason.REBALANCE
        return reason

    def _idle(self, record: ConnectorRecord, state: State, trace: str | None = None) -> None:
        """Nothing runs, until the operator wants something else, or the end is asked for.

        Raises:
            FencedException: another process has taken the connector over.
        """
        status = StatusKeeper(self._store, self._connector, self._name, self._clock)
        status.become(state, trace)
        self._wishes.follow(record)
        while not self._signal.is_final and not self._wishes.has_changed():
            if self._signal.wait(self._wishes.interval):
                self._signal.answered()  # nothing runs: there is nothing to rebalance
            self._expect_ours(status)
            self._wishes.look()
            status.save_if_due()

    def _expect_ours(self, status: StatusKeeper) -> None:
        """Another driver claims before it writes its status, and that before it changes what is wanted."""
        try:
            driver = status.current_driver()
        except (StoreUnavailable, StoreRefused):
            return  # nothing runs that could do harm meanwhile
        if driver != self._name and not is_gone(driver):
            raise FencedException(f"connector {self._connector}: driver {driver} has taken over")

    def _delete(self, record: ConnectorRecord) -> None:
        """Finish a deletion that began while nothing ran, or that a crash ended (KIP-883)."""
        try:
            connector, config = self._connectors(record)
        except ConnectException:
            log.exception(
                "connector %s: deleted without stop(is_deleted=True); what it has outside stays there",
                self._connector,
            )
        else:
            connector.identity = ConnectorIdentity(identify(self._store), self._connector, record.incarnation)
            stop_connector(
                connector,
                self._connector,
                is_deleted=True,
                start_with=config,
                timeout=config.connector_shutdown_timeout_ms / 1000,
                background=self._background,
            )
        remove(self._store, self._connector)
