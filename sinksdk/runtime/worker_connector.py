"""One connector's life in this process: run, paused, stopped, failed, deleted, as its operator wants it."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable

from sinksdk.context import ClosingReason
from sinksdk.control import registry
from sinksdk.control.clean_up import CleanUp, Connectors, Groups, no_group
from sinksdk.control.connector_calls import CallExecutor, ThreadExecutor
from sinksdk.control.deletion import Deletion
from sinksdk.control.ends import Ends, EndsKeeper, EndsWatch
from sinksdk.control.info import connector_info
from sinksdk.control.liveness import deregister, is_gone, register
from sinksdk.control.registry import ConnectorNotFoundException
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.control.status import State, StatusKeeper
from sinksdk.engine.clock import SystemWallClock, WallClock
from sinksdk.errors import ConnectException, FencedException
from sinksdk.runtime.backoff import PASSING, Waits, random_jitter
from sinksdk.runtime.runner import Driver
from sinksdk.store import Store, StoreRefused, StoreUnavailable, table
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord
from sinksdk.store.reports import Waiting
from sinksdk.support.logs import logging_about

log = logging.getLogger(__name__)

Drivers = Callable[[ConnectorRecord | None, PendingRequests], Driver]
"""Makes what runs a connector: as its record says, or (None) with the configuration this process brings.

Raises ConfigException when the configuration cannot work."""

EndsOf = Callable[[ConnectorRecord], Callable[[], Ends]]
"""Makes what asks where a connector's source ends. It may block, and raise ConnectException."""


class WorkerConnector:
    """Follows what is wanted of a connector, for as long as it is this process's.

    Args:
        store: where that stands.
        connector: the connector's name.
        drivers: make what runs it. None: it is only deleted here, and left alone when somebody has created it
            again meanwhile.
        connectors: make one to be deleted.
        groups: find where its commits are mirrored to.
        brings_config: whether this process brings the connector's configuration; else the store has it.
        stays: whether it goes on when the connector has failed, and waits for its operator; else it ends.
        signal: asks for the end.
        clock: time.
        executors: make what runs the code of a connector that is deleted.
        ends: asks where the connector's source ends while no driver does; None: nobody asks.
        waits: how long is waited for what is away, by a process that does not stay; None: it ends.
        jitter: what the delays between attempts at a deletion are multiplied by.
        patience: seconds for which a deletion that is not possible now is tried again; then it is raised why.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        drivers: Drivers | None,
        connectors: Connectors,
        *,
        groups: Groups = no_group,
        brings_config: bool = False,
        stays: bool = False,
        signal: ClosingSignal | None = None,
        clock: WallClock | None = None,
        executors: Callable[[], CallExecutor] = ThreadExecutor,
        ends: EndsOf | None = None,
        waits: Waits | None = None,
        jitter: Callable[[], float] = random_jitter,
        patience: float = math.inf,
    ) -> None:
        self._store = store
        self._connector = connector
        self._drivers = drivers
        self._brings_config = brings_config
        self._stays = stays
        self._signal = signal or ClosingSignal()
        self._clock = clock or SystemWallClock()
        self._give_up_at = self._clock.now() + patience
        self._clean_up = CleanUp(
            store,
            connector,
            connectors,
            groups,
            executors=executors,
            clock=self._clock,
            is_unwanted=lambda: self._signal.is_final,
        )
        self._ends = ends
        self._requests = PendingRequests(store, connector, self._clock)
        self._name = ""
        self._is_patient = stays or waits is not None
        self._waits = waits or Waits(f"connector {connector}", self._clock)
        self._deletion_waits = Waits(f"the deletion of connector {connector}", self._clock, jitter=jitter)
        self._cleaned_up = ""
        """The incarnation that has had its ``stop(True)``."""

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        """End: what runs flushes, commits and closes first. From any thread or signal handler."""
        self._signal.ask(reason)

    def run(self, *, until_caught_up: bool = False) -> None:
        """Run until :meth:`close`, until the connector is deleted, or until it has caught up.

        Raises:
            FencedException: it is another process's now.
            Exception: what made it fail, unless it stays.
        """
        self._name = register()
        try:
            with logging_about(connector=self._connector):
                self._run(until_caught_up=until_caught_up)
        finally:
            deregister(self._name)

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
            except PASSING as error:
                if not self._is_patient:
                    raise
                # What it brings is the store's from its start on.
                brings = brings and not self._waits.has_ended
                self._await(error)

    def _find(self) -> ConnectorRecord | None:
        """What is wanted of it. None: it is gone, which whoever only deletes it wanted."""
        try:
            return registry.find(self._store, self._connector)
        except ConnectorNotFoundException:
            if self._drivers is None:
                return None
            raise

    def _has_ended(self, record: ConnectorRecord | None, *, until_caught_up: bool) -> bool:
        """Do what is wanted of it, until something else is; whether nothing else will be."""
        if record is not None and record.deleted:
            return self._delete(record)
        if self._drivers is None:
            return True  # somebody else has deleted it; who has created it again keeps it
        if record is not None and record.target_state != "RUNNING":
            self._idle(record, record.target_state)
            return False
        reason = self._live(self._drivers, record, until_caught_up=until_caught_up)
        if reason is ClosingReason.DELETE:
            record = registry.find(self._store, self._connector)
            self._cleaned_up = record.incarnation  # the driver has stopped it
            return self._delete(record)
        return reason is None

    def _live(
        self, drivers: Drivers, record: ConnectorRecord | None, *, until_caught_up: bool
    ) -> ClosingReason | None:
        """Run it as RUNNING. None: it has come to its end, and nobody wants anything else of it."""
        try:
            reason = drivers(record, self._requests).run(until_caught_up=until_caught_up)
            assert reason is None or isinstance(reason, ClosingReason)  # noqa: S101 - a driver's
        except (FencedException, *PASSING):
            raise
        except Exception as error:
            if not self._stays or record is None:
                raise
            log.exception("connector %s has failed and waits for its operator", self._connector)
            self._idle(record, "FAILED", "".join(traceback.format_exception(error)))
            return None if self._signal.is_final else ClosingReason.REBALANCE
        return reason

    def _await(self, error: Exception) -> None:
        """What passes by itself is tried again after a while, or as soon as the operator wants something."""
        delay, waiting = self._waits.failed(error)
        if isinstance(error, StoreUnavailable):  # nothing can be told there
            self._signal.wait(delay)
            return
        try:
            record = registry.find(self._store, self._connector)
            if not self._stays and self._is_driven_elsewhere():
                self._signal.wait(delay)  # what is told of it there is that driver's, until we take over
                return
            trace = "".join(traceback.format_exception(error))
            self._idle(record, "RESTARTING", trace, waiting, at_most=delay)
        except (StoreUnavailable, ConnectorNotFoundException):
            self._signal.wait(delay)

    def _is_driven_elsewhere(self) -> bool:
        driver = connector_info(self._store, self._connector, self._clock.time()).driver
        return driver not in ("", self._name)

    def _idle(
        self,
        record: ConnectorRecord,
        state: State,
        trace: str | None = None,
        waiting: Waiting | None = None,
        *,
        at_most: float = math.inf,
    ) -> None:
        """Nothing runs, until the operator wants something else, the end is asked for, or time is up.

        Raises:
            FencedException: another process has taken the connector over.
        """
        go_on_at = self._clock.now() + at_most
        status = StatusKeeper(self._store, self._connector, self._name, self._clock)
        status.become(state, trace, waiting)
        if waiting is None:
            log.info("connector %s is %s", self._connector, state)
        self._requests.follow(record)
        watch = self._ends_watch(record)
        while not self._signal.is_final and not self._requests.has_changed():
            left = go_on_at - self._clock.now()
            if left <= 0:
                return
            if self._signal.wait(min(left, self._requests.interval)):
                self._signal.answered()  # nothing runs: there is nothing to rebalance
            self._expect_ours(status)
            self._requests.look()
            status.save_if_due()
            if watch is not None:
                watch.look_if_due()

    def _ends_watch(self, record: ConnectorRecord) -> EndsWatch | None:
        if self._ends is None:
            return None
        keeper = EndsKeeper(self._store, self._connector, self._clock)
        keeper.catch_up()
        return EndsWatch(self._ends(record), keeper, self._clock)

    def _expect_ours(self, status: StatusKeeper) -> None:
        """Another driver claims before it writes its status, and that before it changes what is wanted."""
        try:
            driver = status.current_driver()
        except (StoreUnavailable, StoreRefused):
            return  # nothing runs that could do harm meanwhile
        if driver != self._name and not is_gone(driver):
            raise FencedException(f"connector {self._connector}: driver {driver} has taken over")

    def _delete(self, record: ConnectorRecord) -> bool:
        """Delete it (KIP-883), also where a crash has ended that; whether it is done.

        What keeps it from being done is shown, and it is tried again after a growing delay.
        """
        try:
            deletion = Deletion(self._store, self._connector, record)
            if record.incarnation != self._cleaned_up:
                self._clean_up.run(deletion, record, self._name)
                self._cleaned_up = record.incarnation
            self._clean_up.show(deletion, record)
            deletion.remove()
        except (FencedException, StoreUnavailable):
            raise
        except ConnectException as error:
            return self._is_deleted_later(record, error)
        log.info("connector %s is deleted", self._connector)
        return True

    def _is_deleted_later(self, record: ConnectorRecord, error: ConnectException) -> bool:
        """Wait before the next attempt; whether somebody else has deleted it meanwhile."""
        delay, waiting = self._deletion_waits.failed(error)
        if self._clock.now() + delay > self._give_up_at:
            raise error
        self._idle(record, "RESTARTING", str(error), waiting, at_most=delay)
        row = table.read(self._store, config_key(self._connector), ConnectorRecord)
        return row is None or row.value.incarnation != record.incarnation
