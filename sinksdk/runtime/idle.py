"""A connector without a running generation waits for its operator, or is deleted (KIP-883)."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass

from sinksdk.control import registry
from sinksdk.control.clean_up import CleanUp, Connectors, Groups
from sinksdk.control.deletion import Deletion, PartlyVisibleException
from sinksdk.control.ends import Ends, EndsKeeper, EndsWatch
from sinksdk.control.liveness import is_gone
from sinksdk.control.status import State, StatusKeeper
from sinksdk.errors import ConnectException, FencedException
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import Backoff, Waits
from sinksdk.runtime.environment import Environment
from sinksdk.store import StoreRefused, StoreUnavailable
from sinksdk.store.records import ConnectorRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Openers:
    connectors: Connectors
    groups: Groups = lambda _: None
    # The query of end offsets may block.
    ends: Callable[[ConnectorRecord], Callable[[], Ends]] | None = None


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
        self._clean_up = CleanUp(
            environment.store,
            connector,
            openers.connectors,
            openers.groups,
            executors=environment.threads.calls,
            clock=environment.clock,
            is_unwanted=lambda: environment.signal.is_final,
        )
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
