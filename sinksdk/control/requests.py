"""Requests to a driver: from its process, from its connector, and from operators, in the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Final

from sinksdk.connector import ConnectorContext
from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException, FencedException
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.store import Store, StoreRefused, StoreUnavailable, committed_offsets, table
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord, Order, TargetState
from sinksdk.support.logs import Outage


class ClosingSignal:
    """Requests that the driver close its generation; from any thread or signal handler."""

    def __init__(self) -> None:
        self._is_requested = threading.Event()
        self._reason: ClosingReason | None = None
        self._is_final = False

    def request(self, reason: ClosingReason, *, final: bool = True) -> None:
        """Request closing; with ``final`` the driver ends, otherwise the next generation follows."""
        # The first reason to end is kept: leaving a with block requests closing once more.
        if not self._is_final:
            self._reason = reason
        self._is_final = self._is_final or final
        self._is_requested.set()

    @property
    def reason(self) -> ClosingReason | None:
        return self._reason if self._is_requested.is_set() else None

    @property
    def is_final(self) -> bool:
        return self._is_final

    def wait(self, timeout: float) -> bool:
        return self._is_requested.wait(timeout)

    def clear(self) -> None:
        # A final request stays in effect.
        if not self._is_final:
            self._is_requested.clear()


class ConnectorRequests(ConnectorContext):
    """Requests of a running connector, from any of its threads."""

    def __init__(self, connector: str, signal: ClosingSignal, store: Store | None = None) -> None:
        self._connector = connector
        self._signal = signal
        self._store = store
        self._lock = threading.Lock()
        self._wants_tasks = False
        self._error: Exception | None = None
        self._has_ended = False

    def committed(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return {} if self._store is None else committed_offsets(self._store, self._connector)

    def request_task_reconfiguration(self) -> None:
        with self._lock:
            if self._has_ended:
                return
            is_news, self._wants_tasks = not self._wants_tasks, True
            self._signal.request(ClosingReason.REBALANCE, final=False)
        if is_news:
            log.info("connector %s requests new task configurations", self._connector)

    def raise_error(self, error: Exception) -> None:
        if not isinstance(error, Exception):
            message = f"raise_error requires an exception, got {error!r}"  # type: ignore[unreachable]  # untyped authors
            raise TypeError(message)
        with self._lock:
            is_first = not self._has_ended and self._error is None
            if is_first:
                self._error = error
                self._signal.request(ClosingReason.FAILURE, final=False)
        if not is_first:
            log.error(
                "connector %s raised a second error, or an error after it had stopped; it is ignored",
                self._connector,
                exc_info=error,
            )

    @property
    def has_failed(self) -> bool:
        return self._error is not None

    def closing(self) -> ClosingReason | None:
        if self._error is not None:
            return ClosingReason.FAILURE
        return ClosingReason.REBALANCE if self._wants_tasks else None

    def clear(self) -> None:
        """Clear the requests so far: no generation runs, and ``task_configs`` is called next."""
        with self._lock:
            self._wants_tasks = False
            self._signal.clear()

    def end(self) -> None:
        with self._lock:
            self._has_ended = True

    def expect_no_error(self) -> None:
        if self._error is None:
            return
        if isinstance(self._error, ConnectException):
            raise self._error
        raise ConnectException(
            f"connector {self._connector} has raised an error: {type(self._error).__name__}: {self._error}"
        ) from self._error


log = logging.getLogger(__name__)

_POLL = 0.5  # seconds between two reads of a store with fast requests

_CLOSING: Final[dict[TargetState, ClosingReason]] = {
    "PAUSED": ClosingReason.PAUSE,
    "STOPPED": ClosingReason.STOP,
}


class PendingRequests:
    """An operator's open requests: differences of the record from the last one carried out."""

    def __init__(self, store: Store, connector: str, clock: Clock) -> None:
        self._store = store
        self._connector = connector
        self._clock = clock
        # A store with paid requests is read less often.
        self.interval = max(_POLL, store.closing_poll / 2)  # seconds between two reads
        self._next = 0.0
        self._row: table.Row[ConnectorRecord] | None = None
        self._done: ConnectorRecord | None = None
        self._now: ConnectorRecord | None = None
        self._outage = Outage(log, f"reading the operator's requests of connector {connector}")

    def follow(self, record: ConnectorRecord) -> None:
        """Take this record as carried out: later differences from it are requests."""
        self._done = self._now = record
        self._next = self._clock.now() + self.interval

    def refresh(self, *, now: bool = False) -> None:
        """Read the record when due, or ``now``; without a response nothing changes."""
        if not now and self._clock.now() < self._next:
            return
        self._next = self._clock.now() + self.interval
        try:
            self._row = table.read_again(
                self._store,
                config_key(self._connector),
                ConnectorRecord,
                self._row,
                is_recent_enough=not now,
            )
        except (StoreUnavailable, StoreRefused) as error:
            self._outage.failed(
                "connector %s: cannot read the operator's requests, retrying: %s", self._connector, error
            )
            return
        self._outage.worked()
        self._now = self._row.value if self._row else None

    def closing(self) -> ClosingReason | None:
        now, done = self._now, self._done
        if done is None:
            return None  # there is no record to compare with yet
        if now is None or now.incarnation != done.incarnation or now.claimed > done.claimed:
            raise FencedException(
                f"connector {self._connector} was deleted, or a newer driver has taken over, while this "
                f"driver sent no heartbeats; this driver stops and changes nothing more"
            )
        if now.deleted:
            # A driver that was started to delete it continues, until an operator forces the deletion.
            is_for_it = done.deleted and now.forced == done.forced
            return None if is_for_it else ClosingReason.DELETE
        if now.target_state != "RUNNING":
            return _CLOSING[now.target_state]
        if now.version != done.version or now.orders.restart != done.orders.restart:
            return ClosingReason.REBALANCE
        return None

    def has_changed(self) -> bool:
        return self._now != self._done

    def consume(self, order: Order) -> bool:
        """Return whether there is an open request of this kind, and mark it as carried out."""
        now, done = self._now, self._done
        if now is None or done is None:
            return False
        wanted = getattr(now.orders, order)
        if wanted == getattr(done.orders, order):
            return False
        orders = done.orders.model_copy(update={order: wanted})
        self._done = done.model_copy(update={"orders": orders})
        return True
