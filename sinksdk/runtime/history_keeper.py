"""Keeps a connector's history in memory and, now and then, in the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import Final

from sinksdk.errors import ConnectException
from sinksdk.logs import Outage
from sinksdk.runtime.clock import WallClock
from sinksdk.runtime.history import Account, Amounts, Growth, together, with_amounts, with_failures
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import history_key
from sinksdk.store.reports import ConnectorHistory

log = logging.getLogger(__name__)

_INTERVAL: Final = 5.0  # seconds between two writes into a near store


class HistoryKeeper:
    """One driver's hold on a connector's history. It informs only: losing it costs no record.

    Nothing is written while nothing is committed. A driver that is killed takes with it what it had not
    written: those records are in no bucket.

    Args:
        store: where it is kept.
        connector: the connector's name.
        clock: time.
    """

    def __init__(self, store: Store, connector: str, clock: WallClock) -> None:
        self._store = store
        self._key = history_key(connector)
        self._clock = clock
        # A store that is paid by the request is written to less often.
        self._interval = max(_INTERVAL, 6 * store.closing_poll)
        self._growth = Growth()
        self._history = ConnectorHistory()
        self._is_loaded = False
        self._version: str | None = None
        self._saved = self._history
        self._next = clock.now()
        self._outage = Outage(log, f"keeping the history of connector {connector}")

    def generation_begins(self) -> None:
        """Tasks count from nothing from now on."""
        self._growth.begin()

    def progress(self, accounts: Iterable[Account]) -> None:
        """Take in what the running generation's tasks report; written when it is time."""
        self._count(accounts)
        if self._clock.now() >= self._next:
            self.save()

    def ended(self, accounts: Sequence[Account]) -> None:
        """Take in what became of a generation, and write it: another driver may be the next one."""
        self._count(accounts)
        self._history = with_failures(self._history, self._clock.time(), accounts)
        self.save()

    def save(self) -> None:
        """Write it now, if there is anything new. What fails is made up for the next time."""
        if self._history == self._saved:
            return
        self._next = self._clock.now() + self._interval
        try:
            self._load()
            self._write()
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("the connector's history cannot be written: %s", error)

    def _count(self, accounts: Iterable[Account]) -> None:
        amounts = self._growth.of(accounts)
        if amounts != Amounts():
            self._history = with_amounts(self._history, self._clock.time(), amounts)

    def _load(self) -> None:
        """Once, and only when this driver has something to add: it is the connector's only one by then."""
        if not self._is_loaded:
            row = table.read(self._store, self._key, ConnectorHistory)
            if row is not None:
                self._history, self._version = together(row.value, self._history), row.version
            self._is_loaded = True

    def _write(self) -> None:
        """Ours holds whole, so a write whose fate is unknown is simply made again."""
        history = self._history
        try:
            row = table.write(self._store, self._key, history, self._version)
        except Conflict:  # an earlier write of ours, or a driver that does not know yet that it is fenced
            found = self._store.stored(self._key)
            row = table.write(self._store, self._key, history, found.version if found else None)
        self._version, self._saved = row.version, history
