"""A new driver requests that the running one closes, so that a rolling deployment loses no progress.

Fencing lets the newest driver win in any case (docs/decisions/0012).
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sinksdk.context import ClosingReason
from sinksdk.control.liveness import MARGIN, POLL_INTERVAL, Heartbeats, is_gone
from sinksdk.control.requests import ClosingSignal
from sinksdk.engine.clock import WallClock
from sinksdk.errors import FencedException
from sinksdk.store import Conflict, Store, request_closing, table
from sinksdk.store.keys import plan_key, task_count_key
from sinksdk.store.records import Closing, GenerationPlan, TaskCountRecord

log = logging.getLogger(__name__)

_HANDOVER = 30.0  # seconds until a driver that requested a close must have claimed
_HANDOVER_POLL = 0.25  # seconds


class Handover:
    def __init__(
        self,
        store: Store,
        connector: str,
        driver: str,
        *,
        clock: WallClock,
        signal: ClosingSignal,
        graceful: float,
        expect_not_replaced: Callable[[TaskCountRecord], None] = lambda _: None,
    ) -> None:
        self._expect_not_replaced = expect_not_replaced
        self._store = store
        self._connector = connector
        self._driver = driver
        self._clock = clock
        self._signal = signal
        self._graceful = graceful
        self._heartbeats = Heartbeats(store, connector, clock)
        self._is_logged = False
        self._plan: table.Row[GenerationPlan] | None = None  # the plan as it was last read

    def await_turn(self) -> bool:
        """Wait until the running generation has closed or its driver is dead; False: this driver must end."""
        give_up = self._clock.now() + self._graceful + MARGIN
        while (running := self._running()) is not None and self._clock.now() < give_up:
            if running.closing is not None and running.closing.answered:
                return True
            # A dead or frozen driver does not respond.
            if self._heartbeats.are_silent():
                break
            self._log_waiting(running)
            if running.closing is None or running.closing.successor is None:
                self._request(running)
            elif self._must_end(max(POLL_INTERVAL, self._store.closing_poll / 5)):
                self._withdraw()
                return False
        return True

    def yield_to(self, successor: str, is_newest: Callable[[], bool], on_wait: Callable[[], None]) -> None:
        """Let the requesting driver take over; resume if it has died."""
        give_up = self._clock.now() + _HANDOVER
        while self._clock.now() < give_up and not is_gone(successor):
            if not is_newest():
                raise FencedException(
                    f"connector {self._connector}: driver {successor} requested a handover and has taken "
                    f"over; the tasks were closed, this driver stops and writes nothing more"
                )
            on_wait()
            self._clock.sleep(_HANDOVER_POLL)
        log.warning(
            "connector %s: driver %s requested a handover but did not take over; this driver continues",
            self._connector,
            successor,
        )

    def _must_end(self, timeout: float) -> bool:
        if self._signal.wait(timeout):
            # No generation runs yet, so that there is nothing to rebalance.
            self._signal.clear()
        return self._signal.is_final

    def _withdraw(self) -> None:
        while (running := self._running()) is not None and running.closing is not None:
            if running.closing.successor != self._driver or running.closing.answered:
                return
            # The running driver has not responded yet, and continues.
            closing = running.closing.model_copy(update={"successor": None})
            if self._replace(running.model_copy(update={"closing": closing})):
                return

    def _running(self) -> GenerationPlan | None:
        count = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
        if count is not None:
            # The running driver may have replaced this process while the store was unavailable.
            self._expect_not_replaced(count.value)
        if count is None or not count.value.planned or count.value.claimed != count.value.planned:
            return None
        key = plan_key(self._connector, count.value.planned)
        self._plan = table.read_again(self._store, key, GenerationPlan, self._plan)
        return self._plan.value if self._plan else None

    def _replace(self, changed: GenerationPlan) -> bool:
        assert self._plan is not None, "no plan was read"  # noqa: S101 - a caller's mistake
        key = plan_key(self._connector, changed.generation)
        try:
            self._plan = table.write(self._store, key, changed, self._plan.version)
        except Conflict:
            return False
        return True

    def _request(self, running: GenerationPlan) -> None:
        # A reason that was requested earlier is kept.
        closing = running.closing or Closing(
            reason=ClosingReason.REBALANCE, timeout=self._graceful, asked=self._clock.time()
        )
        request = closing.model_copy(update={"successor": self._driver})
        # After a conflict the caller reads the plan again.
        if self._replace(running.model_copy(update={"closing": request})):
            request_closing(self._store, self._connector, running.generation, request)

    def _log_waiting(self, running: GenerationPlan) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.warning(
                "connector %s: another driver runs generation %d; requesting it to close, waiting for at "
                "most %g s",
                self._connector,
                running.generation,
                self._graceful,
            )
