"""A connector without a running generation: keeps its status, and waits for its operator."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable

from sinksdk.control.ends import Ends, EndsKeeper, EndsWatch
from sinksdk.control.liveness import is_gone
from sinksdk.control.status import State, StatusKeeper
from sinksdk.errors import FencedException
from sinksdk.runtime.environment import Environment
from sinksdk.store import StoreRefused, StoreUnavailable
from sinksdk.store.records import ConnectorRecord
from sinksdk.store.reports import Waiting

log = logging.getLogger(__name__)

EndsOf = Callable[[ConnectorRecord], Callable[[], Ends]]
"""Creates the query of a connector's end offsets. It may block, and raise ConnectException."""


class Idle:
    """Waits for a connector's operator.

    Args:
        environment: with the same ``requests`` as the connector's driver.
        ends: queries the source's end offsets meanwhile; None: no query.
    """

    def __init__(self, environment: Environment, connector: str, ends: EndsOf | None) -> None:
        self._environment = environment
        self._requests = environment.requests_for(connector)
        self._connector = connector
        self.driver = ""
        """This process's name in the store, while it runs."""
        self._ends = ends

    def wait(
        self,
        record: ConnectorRecord,
        state: State,
        trace: str | None = None,
        waiting: Waiting | None = None,
        *,
        at_most: float = math.inf,
    ) -> None:
        """Show a state until the operator requests another one, the process ends, or time is up.

        Args:
            at_most: seconds.

        Raises:
            FencedException: another process has taken the connector over.
        """
        store, clock, signal = self._environment.store, self._environment.clock, self._environment.signal
        go_on_at = clock.now() + at_most
        status = StatusKeeper(store, self._connector, self.driver, clock)
        status.become(state, trace, waiting)
        if waiting is None:
            log.info("connector %s is %s", self._connector, state)
        self._requests.follow(record)
        watch = self._ends_watch(record)
        while not signal.is_final and not self._requests.has_changed():
            left = go_on_at - clock.now()
            if left <= 0:
                return
            if signal.wait(min(left, self._requests.interval)):
                signal.answered()  # nothing runs: there is nothing to rebalance
            self._expect_ours(status)
            self._requests.look()
            status.save_if_due()
            if watch is not None:
                watch.look_if_due()

    def _ends_watch(self, record: ConnectorRecord) -> EndsWatch | None:
        if self._ends is None:
            return None
        keeper = EndsKeeper(self._environment.store, self._connector, self._environment.clock)
        keeper.catch_up()
        return EndsWatch(self._ends(record), keeper, self._environment.clock)

    def _expect_ours(self, status: StatusKeeper) -> None:
        """Raise FencedException if another live driver wrote the status: it does so right after its claim."""
        try:
            driver = status.current_driver()
        except (StoreUnavailable, StoreRefused):
            return  # no generation runs that could do harm meanwhile
        if driver != self.driver and not is_gone(driver):
            raise FencedException(f"connector {self._connector}: driver {driver} has taken over")
