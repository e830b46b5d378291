"""Requests to a driver: of its own process (:class:`ClosingSignal`), and of operators, in the store."""

from __future__ import annotations

import logging
import threading
from typing import Final

from sinksdk.context import ClosingReason
from sinksdk.control.registry import Order
from sinksdk.engine.clock import Clock
from sinksdk.errors import FencedException
from sinksdk.store import Store, StoreRefused, StoreUnavailable, table
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord, TargetState
from sinksdk.support.logs import Outage


class ClosingSignal:
    """Asks the driver, from any thread or signal handler, to close what runs."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._reason: ClosingReason | None = None
        self._is_final = False

    def ask(self, reason: ClosingReason, *, final: bool = True) -> None:
        """Close; with ``final`` the driver ends, otherwise the next generation follows.

        The first reason to end stays: the end of a ``with`` block asks once more.
        """
        if not self._is_final:
            self._reason = reason
        self._is_final = self._is_final or final
        self._asked.set()

    @property
    def reason(self) -> ClosingReason | None:
        """Why, once it was asked."""
        return self._reason if self._asked.is_set() else None

    @property
    def is_final(self) -> bool:
        """Whether the driver has to end, too."""
        return self._is_final

    def wait(self, timeout: float) -> bool:
        """Wait until it is asked, at most so many seconds. Returns whether it was."""
        return self._asked.wait(timeout)

    def answered(self) -> None:
        """The generation has closed; a rebalance is over, an end stays asked for."""
        if not self._is_final:
            self._asked.clear()


log = logging.getLogger(__name__)

_LOOK = 0.5  # seconds between two looks into a near store

_CLOSING: Final[dict[TargetState, ClosingReason]] = {
    "PAUSED": ClosingReason.PAUSE,
    "STOPPED": ClosingReason.STOP,
}


class PendingRequests:
    """An operator's open requests: the connector's record compared with what was last carried out."""

    def __init__(self, store: Store, connector: str, clock: Clock) -> None:
        self._store = store
        self._connector = connector
        self._clock = clock
        # A store that is paid by the request is asked less often.
        self.interval = max(_LOOK, store.closing_poll / 2)
        """Seconds between two looks."""
        self._next = 0.0
        self._row: table.Row[ConnectorRecord] | None = None
        self._done: ConnectorRecord | None = None
        self._now: ConnectorRecord | None = None
        self._outage = Outage(log, f"looking what is wanted of connector {connector}")

    def follow(self, record: ConnectorRecord) -> None:
        """This much is carried out: what differs from it is requested."""
        self._done = self._now = record
        self._next = self._clock.now() + self.interval

    def look(self) -> None:
        """Look when it is time. A store that does not answer changes nothing."""
        if self._clock.now() >= self._next:
            self._look(is_recent_enough=True)

    def look_now(self) -> None:
        """As :meth:`look`, whenever the last time was; sees everything that was written before."""
        self._look(is_recent_enough=False)

    def _look(self, *, is_recent_enough: bool) -> None:
        self._next = self._clock.now() + self.interval
        try:
            self._row = table.read_again(
                self._store,
                config_key(self._connector),
                ConnectorRecord,
                self._row,
                is_recent_enough=is_recent_enough,
            )
        except (StoreUnavailable, StoreRefused) as error:
            self._outage.failed("connector %s: what is wanted of it is unknown: %s", self._connector, error)
            return
        self._outage.worked()
        self._now = self._row.value if self._row else None

    def closing(self) -> ClosingReason | None:
        """Why the driver has to close what runs; None: it goes on.

        Raises:
            FencedException: it is not this driver's any more.
        """
        now, done = self._now, self._done
        if done is None:
            return None  # nothing is followed yet
        if now is None or now.incarnation != done.incarnation or now.claimed > done.claimed:
            raise FencedException(
                f"connector {self._connector}: it was deleted, or a newer driver has taken over, while this "
                f"one was not heard of; it ends and touches nothing more"
            )
        if now.deleted:
            return ClosingReason.DELETE
        if now.target_state != "RUNNING":
            return _CLOSING[now.target_state]
        if now.version != done.version or now.orders.restart != done.orders.restart:
            return ClosingReason.REBALANCE
        return None

    def has_changed(self) -> bool:
        """Whether anything is requested; for a connector that does not run."""
        return self._now != self._done

    def consume(self, order: Order) -> bool:
        """Whether something was ordered since it was last done; it counts as done afterwards."""
        now, done = self._now, self._done
        if now is None or done is None:
            return False
        wanted = getattr(now.orders, order)
        if wanted == getattr(done.orders, order):
            return False
        orders = done.orders.model_copy(update={order: wanted})
        self._done = done.model_copy(update={"orders": orders})
        return True
