"""A connector without a running generation waits for its operator, or is deleted (KIP-883)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from sinksdk.config import ConnectorConfig
from sinksdk.connector import Connector, ConnectorIdentity, SinkConnector
from sinksdk.control import registry
from sinksdk.control.connector_calls import ConnectorCalls
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.deletion import Call, Deletion, PartlyVisibleException
from sinksdk.control.ends import Ends, EndsKeeper, EndsWatch
from sinksdk.control.liveness import is_gone
from sinksdk.control.status import State, StatusKeeper
from sinksdk.errors import ConnectException, FencedException
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import Backoff, Waits
from sinksdk.runtime.environment import Environment
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.store import StoreRefused, StoreUnavailable, identify
from sinksdk.store.records import ConnectorRecord

Config = ConnectorConfig | SourceConnectorConfig

Connectors = Callable[[ConnectorRecord], tuple[Connector, Config]]

Groups = Callable[[ConnectorRecord], OffsetGroup | None]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Openers:
    connectors: Connectors
    groups: Groups = lambda _: None
    # The query of end offsets may block.
    ends: Callable[[ConnectorRecord], Callable[[], Ends]] | None = None


class CleanUp:
    """Publishes a deleted connector's commits, calls ``stop(True)``, and writes its consumer group."""

    def __init__(self, environment: Environment, connector: str, openers: Openers) -> None:
        self._store, self._clock = environment.store, environment.clock
        self._environment = environment
        self._connector = connector
        self._openers = openers

    def run(self, deletion: Deletion, record: ConnectorRecord, driver: str) -> None:
        """Publish committed tokens, then call ``stop(True)`` of a new instance of the connector."""
        try:
            connector, config = self._openers.connectors(record)
        except ConnectException as error:
            self._expect_published(deletion, record, str(error))
            log.exception(
                "connector %s: deleted without a call of stop(is_deleted=True), because its configuration is "
                "invalid; resources that it created elsewhere remain",
                self._connector,
            )
            return
        connector.identity = ConnectorIdentity(identify(self._store), self._connector, record.incarnation)
        calls = ConnectorCalls(connector, self._connector, self._clock, self._environment.threads.calls)
        is_settled = False
        try:
            problem = self._start(calls, connector, config)
            if not deletion.is_settled and isinstance(connector, SinkConnector):

                def settle() -> str:
                    call = self._calls(calls, config, driver)
                    return problem or deletion.settle(connector, config.tasks_max, call, self._clock)

                if self._expect_published(deletion, record, settle()):
                    settle()  # discards the withdrawn tokens, if possible
            is_settled = True
        finally:
            calls.stop(is_deleted=is_settled, timeout=config.connector_shutdown_timeout_ms / 1000)

    def _start(self, calls: ConnectorCalls, connector: Connector, config: Config) -> str:
        timeout = config.connector_shutdown_timeout_ms / 1000
        try:
            # stop may need the resources that start opens.
            calls.call("start", lambda: connector.start(config), timeout=timeout)
        except Exception as error:
            log.warning(
                "connector %s: start failed before its deletion; calling stop anyway",
                self._connector,
                exc_info=True,
            )
            return f"start failed: {error}"
        return ""

    def _calls(self, calls: ConnectorCalls, config: Config, driver: str) -> Call:
        status = StatusKeeper(self._store, self._connector, driver, self._clock)
        status.become("RESTARTING")

        def is_unwanted() -> bool:
            status.save_if_due()
            return self._environment.signal.is_final

        return partial(calls.call, timeout=config.task_hang_timeout_ms / 1000, is_unwanted=is_unwanted)

    def _expect_published(self, deletion: Deletion, record: ConnectorRecord, reason: str) -> bool:
        """Raise if a commit is not published, unless forced; return whether any was dropped."""
        if record.forced:
            return deletion.give_up()
        deletion.expect_published(reason)
        return False

    def show(self, deletion: Deletion, record: ConnectorRecord) -> None:
        """Set the consumer group to the published offsets, so that consumers can continue there."""
        visible = deletion.visible()
        try:
            group = self._openers.groups(record)
            if group is not None and visible:
                known, ours = group.offsets(visible.keys()), deletion.reached()
                # A group offset beyond every commit was written by other consumers: do not change it.
                if moved := {p: at for p, at in visible.items() if known.get(p, at) <= ours[p]}:
                    group.write(moved)
        except ConnectException as error:
            message = (
                f"connector {self._connector} is not deleted yet: its committed offsets cannot be written "
                f"to its consumer group: {error}; 'sinksdk delete {self._connector} --force' deletes it "
                f"without writing them"
            )
            if not record.forced:
                raise ConnectException(message) from error
            log.error(  # noqa: TRY400 - the operator passed --force
                "connector %s is deleted by force; its consumer group may lag behind its commits: %s",
                self._connector,
                error,
            )


class Idle:
    def __init__(
        self, environment: Environment, connector: str, openers: Openers, *, patience: float
    ) -> None:
        self._environment = environment
        self._requests = environment.requests_for(connector)
        self._connector = connector
        # The name of this process in the store, while it runs.
        self.driver = ""
        self._ends = openers.ends
        self._clean_up = CleanUp(environment, connector, openers)
        # The last deletion has found records visible above a commit.
        self.has_to_run = False
        # The incarnation that has had its ``stop(True)``.
        self.cleaned_up = ""
        backoff = Backoff(1.0, environment.clock, jitter=environment.jitter)
        self._deletion_waits = Waits(f"the deletion of connector {connector}", environment.clock, backoff)
        self._give_up_at = environment.clock.now() + patience

    def wait(
        self,
        record: ConnectorRecord,
        state: State,
        trace: str | None = None,
        waiting: Waiting | None = None,
        *,
        at_most: float = math.inf,
    ) -> None:
        """Show a state until the operator requests another one, the process ends, or time is up."""
        store, clock, signal = self._environment.store, self._environment.clock, self._environment.signal
        wait_until = clock.now() + at_most
        status = StatusKeeper(store, self._connector, self.driver, clock)
        status.become(state, trace, waiting)
        if waiting is None:
            log.info("connector %s is %s", self._connector, state)
        self._requests.follow(record)
        watch = self._ends_watch(record)
        while not signal.is_final and not self._requests.has_changed():
            left = wait_until - clock.now()
            if left <= 0:
                return
            if signal.wait(min(left, self._requests.interval)):
                signal.clear()  # no generation runs, so there is nothing to rebalance
            self._expect_not_replaced(status)
            self._requests.refresh()
            status.save_if_due()
            if watch is not None:
                watch.query_if_due()

    def _ends_watch(self, record: ConnectorRecord) -> EndsWatch | None:
        if self._ends is None:
            return None
        keeper = EndsKeeper(self._environment.store, self._connector, self._environment.clock)
        keeper.catch_up()
        return EndsWatch(self._ends(record), keeper, self._environment.clock)

    def _expect_not_replaced(self, status: StatusKeeper) -> None:
        try:
            driver = status.current_driver()
        except (StoreUnavailable, StoreRefused):
            return  # without a running generation the check can wait
        # A driver writes the status right after its claim.
        if driver != self.driver and not is_gone(driver):
            raise FencedException(f"connector {self._connector}: driver {driver} has taken over")

    def delete(self, record: ConnectorRecord) -> bool:
        """Delete the connector, also after a crash in between; return whether the deletion is complete."""
        self.has_to_run = False
        try:
            deletion = Deletion(self._environment.store, self._connector, record)
            if record.incarnation != self.cleaned_up:
                self._clean_up.run(deletion, record, self.driver)
                self.cleaned_up = record.incarnation
            self._clean_up.show(deletion, record)
            deletion.remove()
        except (FencedException, StoreUnavailable):
            raise
        except ConnectException as error:
            self.has_to_run = isinstance(error, PartlyVisibleException)
            return self._await_next_deletion(record, error)
        log.info("connector %s is deleted", self._connector)
        return True

    def _await_next_deletion(self, record: ConnectorRecord, error: ConnectException) -> bool:
        delay, waiting = self._deletion_waits.failed(error)
        if self._environment.clock.now() + delay > self._give_up_at:
            raise error
        self.wait(record, "RESTARTING", str(error), waiting, at_most=delay)
        try:
            return registry.find(self._environment.store, self._connector).incarnation != record.incarnation
        except registry.ConnectorNotFoundException:
            return True
