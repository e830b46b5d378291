"""How a driver takes over from one that still runs: it asks first, so that no progress is lost.

The newest driver wins in any case; that is what fencing is for. But a generation that is fenced in
its middle loses what it has not committed, and a rolling deploy would do that each time. So the
newcomer writes into the running generation's plan that it must close, with itself as successor. The
tasks see it and flush; the older driver answers when they have ended, and ends itself. A driver that
is dead, or frozen, does not answer; its silence is noticed by its heartbeats, which are watched for change.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sinksdk.context import ClosingReason
from sinksdk.control.liveness import LOOK, MARGIN, Heartbeats, is_gone
from sinksdk.engine.clock import WallClock
from sinksdk.errors import FencedException
from sinksdk.store import Conflict, Store, ask_to_close, table
from sinksdk.store.keys import plan_key, task_count_key
from sinksdk.store.records import Closing, GenerationPlan, TaskCountRecord

log = logging.getLogger(__name__)

_HANDOVER = 30.0  # seconds until a driver that asked to take over must have done so
_HANDOVER_POLL = 0.25  # seconds


class Handover:
    """Asks whoever drives a connector to close, and waits for it; later it gives way to the next driver.

    Args:
        driver: this driver's name.
        wait: waits so many seconds; True when the process was asked to end meanwhile.
        graceful: seconds the running tasks have for closing.
    """

    def __init__(
        self,
        store: Store,
        connector: str,
        driver: str,
        *,
        clock: WallClock,
        wait: Callable[[float], bool],
        graceful: float,
        is_gone: Callable[[str], bool] = is_gone,
    ) -> None:
        self._store = store
        self._connector = connector
        self._driver = driver
        self._clock = clock
        self._wait = wait
        self._graceful = graceful
        self._is_gone = is_gone
        self._heartbeats = Heartbeats(store, connector, clock, is_gone)
        self._is_logged = False
        self._plan: table.Row[GenerationPlan] | None = None  # as it was read last

    def await_turn(self) -> bool:
        """Return once nothing runs that would lose progress, or nobody answers.

        Returns:
            False when the newcomer was asked to end before it was its turn.

        Raises:
            StoreUnavailable: the store does not answer.
        """
        give_up = self._clock.now() + self._graceful + MARGIN
        while (running := self._running()) is not None and self._clock.now() < give_up:
            if running.closing is not None and running.closing.answered:
                return True
            if self._heartbeats.are_silent():
                break
            self._log_waiting(running)
            if not _has_successor(running):
                self._ask(running)
            elif self._wait(max(LOOK, self._store.closing_poll / 5)):
                self._withdraw()
                return False
        return True

    def yield_to(self, successor: str, is_newest: Callable[[], bool], on_wait: Callable[[], None]) -> None:
        """Let a driver take over that has asked for it. One that does not come has died.

        Args:
            successor: its name.
            is_newest: whether this driver's claim is still the newest.
            on_wait: called again and again meanwhile.

        Raises:
            FencedException: it has taken over.
        """
        give_up = self._clock.now() + _HANDOVER
        while self._clock.now() < give_up and not self._is_gone(successor):
            if not is_newest():
                raise FencedException(
                    f"connector {self._connector}: driver {successor} has asked this one to give way, and "
                    f"has taken over; its tasks were closed, this driver ends and touches nothing more"
                )
            on_wait()
            self._clock.sleep(_HANDOVER_POLL)
        log.warning(
            "connector %s: driver %s asked to take over and never did; this one goes on",
            self._connector,
            successor,
        )

    def _withdraw(self) -> None:
        """Nobody takes over after all: a driver that has not answered yet goes on."""
        while (running := self._running()) is not None and running.closing is not None:
            if running.closing.successor != self._driver or running.closing.answered:
                return
            closing = running.closing.model_copy(update={"successor": None})
            if self._replace(running.model_copy(update={"closing": closing})):
                return

    def _running(self) -> GenerationPlan | None:
        """The plan of the generation that runs, if one may be running."""
        count = table.read(self._store, task_count_key(self._connector), TaskCountRecord)
        if count is None or not count.value.planned or count.value.claimed != count.value.planned:
            return None
        key = plan_key(self._connector, count.value.planned)
        self._plan = table.read_again(self._store, key, GenerationPlan, self._plan)
        return self._plan.value if self._plan else None

    def _replace(self, changed: GenerationPlan) -> bool:
        """Write the plan that was read last; False where somebody has written it meanwhile."""
        assert self._plan is not None, "no plan was read"  # noqa: S101 - a caller's mistake
        key = plan_key(self._connector, changed.generation)
        try:
            self._plan = table.write(self._store, key, changed, self._plan.version)
        except Conflict:
            return False
        return True

    def _ask(self, running: GenerationPlan) -> None:
        """Write into its plan that it must close for this driver. A reason that is there already stays."""
        closing = running.closing or Closing(
            reason=ClosingReason.REBALANCE, timeout=self._graceful, asked=self._clock.time()
        )
        asked = closing.model_copy(update={"successor": self._driver})
        if self._replace(running.model_copy(update={"closing": asked})):  # else look again
            ask_to_close(self._store, self._connector, running.generation, asked)

    def _log_waiting(self, running: GenerationPlan) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.warning(
                "connector %s: another driver runs generation %d; it is asked to close, for at most %g s",
                self._connector,
                running.generation,
                self._graceful,
            )


def _has_successor(plan: GenerationPlan) -> bool:
    return plan.closing is not None and plan.closing.successor is not None
