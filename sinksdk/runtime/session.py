"""A driver's session with a connector, sink or source: start, handover and end."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector, ConnectorIdentity, SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.control import liveness
from sinksdk.control.connector_calls import ConnectorCalls
from sinksdk.control.registry import change, deploy, register, with_kind, wrong_kind
from sinksdk.control.requests import ConnectorRequests
from sinksdk.control.status import StatusKeeper
from sinksdk.errors import ConnectException, FencedException, RetriableException
from sinksdk.model.status import Waiting
from sinksdk.plugins.checks import task_configs_of
from sinksdk.runtime.backoff import PASSING, Backoff, Waits
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.handover import Handover
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store import identify
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.records import ConnectorKind, ConnectorRecord
from sinksdk.store.reports import PLAN_TIMEOUT

log = logging.getLogger(__name__)

_SILENCE = 5.0  # seconds after which an unreadable source is shown as unavailable
# Seconds between attempts at an unavailable source: one at Kafka lasts 10 s itself, and a connector has a
# minute to catch up once its broker responds again.
_LONGEST = 5.0
_CHECK_INTERVAL = 0.5  # seconds between checks whether the result is still needed

T = TypeVar("T")

# Runs generations, of which the first is claimed, and returns why the operator stops the connector.
Drive = Callable[[Claim, ConnectorRecord], ClosingReason | None]


Settings = ConnectorConfig | SourceConnectorConfig


class DriverSession:
    """One driver's session with a connector; the constructor registers the connector in the store."""

    # More than ten attributes: both kinds of drivers share them.
    def __init__(
        self, environment: Environment, connector: Connector, config: Settings, raw: Mapping[str, Any]
    ) -> None:
        self.name = config.name
        # Durations are in seconds.
        self.graceful = config.graceful_timeout_ms / 1000
        self.poll_interval = config.poll_interval_ms / 1000
        self.environment = environment
        self.store, self.clock, self.signal = environment.store, environment.clock, environment.signal
        self.requests = environment.requests_for(config.name)
        self._connector = connector
        self._config = config
        self._raw = raw
        self._subscribed: set[str] = set()
        self._meanwhile: Callable[[], None] = lambda: None
        backoff = Backoff(self.poll_interval, self.clock, longest=_LONGEST)
        self._source_waits = Waits(f"connector {config.name}", self.clock, backoff, after=_SILENCE)
        self._launch_waits = Waits(f"the generation of connector {config.name}", self.clock)
        self._is_source_away = self._is_launch_away = False
        self._overdue_since: float | None = None
        self._calls = ConnectorCalls(connector, config.name, self.clock, environment.threads.calls)
        self._kind: ConnectorKind = "sink" if isinstance(connector, SinkConnector) else "source"
        if environment.record is not None:
            known = with_kind(self.store, config.name, environment.record, self._kind)
        else:
            known = register(self.store, config.name, raw, self._kind)
        connector.identity = ConnectorIdentity(identify(self.store), config.name, known.incarnation)
        connector.context = self.connector_requests = ConnectorRequests(config.name, self.signal, self.store)
        self._driver = liveness.register()
        environment.tenure.drivers.add(self._driver)
        self.generations = Generations(self.store, config.name, self._driver, environment.tenure)
        try:
            timeout = config.errors_retry_timeout
            self.status = StatusKeeper(
                self.store,
                config.name,
                self._driver,
                self.clock,
                timeout / 1000 if timeout >= 0 else PLAN_TIMEOUT,
            )
        except BaseException:
            liveness.deregister(self._driver)
            raise
        self._handover = Handover(
            self.store,
            config.name,
            self._driver,
            clock=self.clock,
            signal=self.signal,
            graceful=self.graceful,
            expect_not_replaced=self.generations.expect_not_replaced,
        )

    def run(self, drive: Drive, meanwhile: Callable[[], None] = lambda: None) -> ClosingReason | None:
        """Start the connector, drive it once it is this driver's turn, and stop it.

        Returns STOP instead of DELETE if the connector cannot be deleted yet, REBALANCE if a new connector
        has its name and must be started. ``meanwhile`` must not block.
        """
        self._meanwhile = meanwhile
        if self.environment.record is not None:
            self.requests.follow(self.environment.record)
        reason: ClosingReason | None = None
        try:
            self.call("start", self._connector.start, self._config)
            if self._handover.await_turn():
                reason = self._take_turn(drive)
                if reason is None:
                    self.connector_requests.expect_no_error()
                if reason is ClosingReason.DELETE:
                    # The state is not UNASSIGNED: this process deletes the connector, and no other may take
                    # over.
                    if self._has_unpublished():
                        reason = ClosingReason.STOP  # so the deletion first publishes commits
                else:
                    self.status.become("UNASSIGNED")
        except FencedException:
            raise  # the newer driver now writes the status
        except Exception as error:
            if self.generations.has_claimed:  # before the claim another driver may be running
                is_transient = isinstance(error, PASSING)
                self.status.become("RESTARTING" if is_transient else "FAILED", traceback.format_exc())
            raise
        finally:
            liveness.deregister(self._driver)
            self.connector_requests.end()
            self._calls.stop(
                is_deleted=reason is ClosingReason.DELETE,
                timeout=self._config.connector_shutdown_timeout_ms / 1000,
            )
        return reason

    def _has_unpublished(self) -> bool:
        claim = self.generations.claim()
        left = sorted(map(str, claim.unpublished().keys() | claim.partly_visible().keys()))
        if left:
            log.warning(
                "connector %s: committed records of %s are not published yet, or uncommitted ones are "
                "visible; the connector is deleted once both are settled",
                self._config.name,
                ", ".join(left),
            )
        return bool(left)

    def call(self, what: str, function: Callable[..., T], *arguments: object) -> T:
        """Call the connector's own code, which may hang, and handle the operator's requests meanwhile."""
        return self._calls.call(
            what,
            partial(function, *arguments),
            timeout=self._config.connector_start_timeout_ms / 1000,
            is_unwanted=self.is_unwanted,
            grace=self._config.connector_shutdown_timeout_ms / 1000,
        )

    def task_configs(self) -> list[dict[str, str]]:
        self.connector_requests.clear()
        return self.call("task_configs", task_configs_of, self._connector, self.name, self._config.tasks_max)

    def subscribe(self, topics: set[str]) -> None:
        connector = self._connector
        assert isinstance(connector, SinkConnector)  # noqa: S101 - a source reads no topics
        if topics - self._subscribed:
            self.call("subscribed", connector.subscribed, sorted(topics))
            self._subscribed |= topics

    def is_ended(self) -> bool:
        self.requests.refresh()
        return (
            self.signal.is_final or self.requests.closing() is not None or self.connector_requests.has_failed
        )

    def carry_out_orders(
        self, restart_failed: Callable[[], bool], flush: Callable[[], None] = lambda: None
    ) -> ClosingReason | None:
        """Apply requests to restart, rebalance or flush; return why the running generation must close."""
        restarts = self.requests.consume("restart_failed") and restart_failed()
        rebalances = self.requests.consume("rebalance")
        flushes = self.requests.consume("flush")
        if flushes:
            flush()
        if (reason := self.connector_requests.closing()) is not None:
            return reason
        if restarts or rebalances:
            return ClosingReason.REBALANCE
        return ClosingReason.DUE if flushes else None

    def is_unwanted(self) -> bool:
        self._stay_alive()
        return self.is_ended()

    def patiently(self, query: Callable[[], T]) -> T | None:
        """Query the source until it is available; None: a close was requested."""
        begun = self.clock.now()
        while True:
            try:
                result = query()
            except RetriableException as error:
                delay, waiting = self._source_waits.failed(error, since=begun)
                self._is_source_away = True
                self._wait_for(waiting)
                if not self.wait(delay):
                    return None
            else:
                self._source_waits.over()
                if self._is_source_away:  # otherwise the status may show a wait for another system
                    self._is_source_away = False
                    self.status.wait_for(None)
                return result

    def launch_failed(self, error: ConnectException) -> None:
        _, waiting = self._launch_waits.failed(error)
        self._is_launch_away = True
        self._wait_for(waiting)
        self.signal.wait(self.poll_interval)

    def launched(self) -> None:
        if self._is_launch_away:
            self._is_launch_away = False
            self._launch_waits.over()
            self.status.wait_for(None)

    def _wait_for(self, waiting: Waiting | None) -> None:
        self.status.wait_for(waiting)
        # Logged once for each wait longer than ``errors.retry.timeout``.
        overdue = self.status.overdue()
        if overdue is not None and waiting is not None and self._overdue_since != waiting.since:
            self._overdue_since = waiting.since
            log.error("connector %s: %s", self.name, overdue)

    def wait(self, delay: float) -> bool:
        give_up = self.clock.now() + delay
        while (left := give_up - self.clock.now()) > 0:
            if self.is_unwanted() or self.signal.wait(min(left, _CHECK_INTERVAL)):
                return False
        return True

    def expect_newest(self, *, is_recent_enough: bool = False) -> None:
        if not self.generations.is_newest(is_recent_enough=is_recent_enough):
            raise FencedException(f"connector {self._config.name}: a newer driver has taken over")

    def yield_to_successor(self) -> None:
        successor = self.generations.yield_to_successor()
        if successor is not None:
            self._handover.yield_to(successor, self.generations.is_newest, self._stay_alive)

    def _stay_alive(self) -> None:
        # Before the claim another driver may be running.
        if self.generations.has_claimed:
            self.status.save_if_due()
        self._meanwhile()

    def _take_turn(self, drive: Drive) -> ClosingReason | None:
        claim = self.generations.claim()
        if claim.before is not None and claim.before.frames is not None:
            raise wrong_kind(self.store, self.name, "dataframe", self._kind)
        if self.environment.waits is not None:
            self.environment.waits.over()
        if self.environment.record is not None:
            # Read changes that were made since the start, above all a deletion before the claim.
            self.requests.refresh(now=True)
            if (reason := self.requests.closing()) is not None:
                return reason
        self.status.become("RUNNING")
        # The record is written after the claim: a driver that fails before it changes nothing.
        record = self.environment.record or deploy(
            self.store, self.name, self._raw, claim.generation, self._kind
        )
        log.info(
            "connector %s is RUNNING, configuration %d, from generation %d on",
            self._config.name,
            record.version,
            claim.generation,
        )
        if record.kind is None:
            change(self.store, self.name, lambda known: with_kind(self.store, self.name, known, self._kind))
            record = record.model_copy(update={"kind": self._kind})
        self.requests.follow(record)
        if record.incarnation != self._connector.identity.incarnation:
            log.info(
                "connector %s was deleted and created again while this driver started; restarting with "
                "the new one",
                self._config.name,
            )
            return ClosingReason.REBALANCE
        return drive(claim, record)
