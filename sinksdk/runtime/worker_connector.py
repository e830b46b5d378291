"""One connector's life in this process: run, paused, stopped, failed, deleted, as its operator wants it."""

from __future__ import annotations

import logging
import math
import traceback
from collections.abc import Callable
from typing import Final

from sinksdk.connector import Connector, ConnectorIdentity
from sinksdk.context import ClosingReason
from sinksdk.errors import ConnectException, FencedException, RetriableException
from sinksdk.logs import logging_about
from sinksdk.runtime import registry
from sinksdk.runtime.author import Author, Caller, CallingThread
from sinksdk.runtime.clock import SystemWallClock, WallClock
from sinksdk.runtime.closing_signal import ClosingSignal
from sinksdk.runtime.deletion import remove
from sinksdk.runtime.pacing import Pacing, random_jitter
from sinksdk.runtime.runner import Driver
from sinksdk.runtime.status import State, StatusKeeper
from sinksdk.runtime.succession import enter, is_gone, leave
from sinksdk.runtime.tenure import Settings
from sinksdk.runtime.wishes import Wishes
from sinksdk.store import Store, StoreRefused, StoreUnavailable, identify
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)

_BACKOFF: Final = 1.0  # seconds until a connector whose surroundings failed is started again; doubles

Drivers = Callable[[ConnectorRecord | None, Wishes], Driver]
"""Makes what runs a connector: as its record says, or (None) with the configuration this process brings.

Raises ConfigException when the configuration cannot work."""

Connectors = Callable[[ConnectorRecord], tuple[Connector, Settings]]
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
        callers: make what runs the code of a connector that is deleted.
        jitter: what each back-off is multiplied by.
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
        callers: Callable[[], Caller] = CallingThread,
        jitter: Callable[[], float] = random_jitter,
    ) -> None:
        self._store = store
        self._connector = connector
        self._drivers = drivers
        self._connectors = connectors
        self._brings_config = brings_config
        self._stays = stays
        self._signal = signal or ClosingSignal()
        self._clock = clock or SystemWallClock()
        self._callers = callers
        self._wishes = Wishes(store, connector, self._clock)
        self._name = ""
        self._pacing = Pacing(_BACKOFF, self._clock, jitter=jitter)
        self._failures = 0

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
            with logging_about(connector=self._connector):
                self._run(until_caught_up=until_caught_up)
        finally:
            leave(self._name)

    def _run(self, *, until_caught_up: bool) -> None:
        is_first = True
        while not self._signal.is_final:
            try:
                brings = self._brings_config and is_first
                record = None if brings else registry.find(self._store, self._connector)
                is_first = False
                if self._has_ended(record, until_caught_up=until_caught_up):
                    return
            except StoreUnavailable as error:
                if not self._stays:
                    raise
                delay = self._put_off()
                log.warning("connector %s is looked at again in %.1f s: %s", self._connector, delay, error)
                self._signal.wait(delay)

    def _has_ended(self, record: ConnectorRecord | None, *, until_caught_up: bool) -> bool:
        """Do what is wanted of it, until something else is; whether nothing else will be."""
        if record is not None and record.deleted:
            self._delete(record)
            return True
        if record is not None and record.target_state != "RUNNING":
            self._idle(record, record.target_state)
            return False
        reason = self._live(record, until_caught_up=until_caught_up)
        if reason is ClosingReason.DELETE:
            self._remove()  # the driver has stopped it
        return reason is None or reason is ClosingReason.DELETE

    def _live(self, record: ConnectorRecord | None, *, until_caught_up: bool) -> ClosingReason | None:
        """Run it as RUNNING. None: it has come to its end, and nobody wants anything else of it."""
        try:
            reason = self._drivers(record, self._wishes).run(until_caught_up=until_caught_up)
            assert reason is None or isinstance(reason, ClosingReason)  # noqa: S101 - a driver's
        except (FencedException, StoreUnavailable):
            raise
        except Exception as error:
            if not self._stays or record is None:
                raise
            log.exception("connector %s has failed", self._connector)
            self._wait_after(error, record)
            return None if self._signal.is_final else ClosingReason.REBALANCE
        self._failures = 0
        return reason

    def _wait_after(self, error: Exception, record: ConnectorRecord) -> None:
        """What may go by itself is tried again; anything else waits for the operator."""
        trace = "".join(traceback.format_exception(error))
        if isinstance(error, RetriableException):
            delay = self._put_off()
            log.warning("connector %s is started again in %.1f s", self._connector, delay)
            self._idle(record, "RESTARTING", trace, at_most=delay)
        else:
            self._idle(record, "FAILED", trace)

    def _put_off(self) -> float:
        """Seconds until the next attempt, after one more that failed."""
        self._failures += 1
        return self._pacing.delay(self._failures)

    def _idle(
        self,
        record: ConnectorRecord,
        state: State,
        trace: str | None = None,
        *,
        at_most: float = math.inf,
    ) -> None:
        """Nothing runs, until the operator wants something else, the end is asked for, or time is up.

        Raises:
            FencedException: another process has taken the connector over.
        """
        go_on_at = self._clock.now() + at_most
        status = StatusKeeper(self._store, self._connector, self._name, self._clock)
        status.become(state, trace)
        log.info("connector %s is %s", self._connector, state)
        self._wishes.follow(record)
        while not self._signal.is_final and not self._wishes.has_changed():
            left = go_on_at - self._clock.now()
            if left <= 0:
                return
            if self._signal.wait(min(left, self._wishes.interval)):
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
            self._clean_up(connector, config)
        self._remove()

    def _remove(self) -> None:
        remove(self._store, self._connector)
        log.info("connector %s is deleted", self._connector)

    def _clean_up(self, connector: Connector, config: Settings) -> None:
        """``start``, as far as it goes, then ``stop(True)``: what does not run has nothing to clean with."""
        author = Author(connector, self._connector, self._clock, self._callers)
        timeout = config.connector_shutdown_timeout_ms / 1000
        try:
            author.call("start", lambda: connector.start(config), timeout=timeout)
        except Exception:
            log.warning(
                "connector %s: start failed before its deletion; stop is called all the same",
                self._connector,
                exc_info=True,
            )
        author.stop(is_deleted=True, timeout=timeout)
