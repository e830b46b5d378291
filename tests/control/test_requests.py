"""What an operator wants, as a driver sees it."""

from __future__ import annotations

import logging

import pytest

from sinksdk import ClosingReason
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal, PendingRequests
from sinksdk.store import StoreRefused
from sinksdk.testing import ManualClock
from tests.memory_store import MemoryStore


class Refusing(MemoryStore):
    """A store that lets nobody read, for a while."""

    refuses = False

    def version(self, key: str) -> str | None:
        if self.refuses:
            message = "permission denied"
            raise StoreRefused(message)
        return super().version(key)


def test_what_cannot_be_read_is_told_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It is looked at each second or so: a line for each look would be the same line."""
    store = Refusing()
    Herder(store).create("c", {"name": "c", "topics": "t"})
    requests = PendingRequests(store, "c", ManualClock())
    requests.follow(registry.find(store, "c"))
    requests.look(now=True)
    for refuses in (True, True, True, False, False):
        store.refuses = refuses
        requests.look(now=True)

    first, last = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert first == "connector c: what is wanted of it is unknown: permission denied"
    assert last.startswith("looking what is wanted of connector c works again after")


def test_the_first_reason_to_end_stays() -> None:
    """Regression: leaving the block of ``sinksdk.start`` made a SHUTDOWN of whatever ``close`` had been given."""
    signal = ClosingSignal()
    signal.ask(ClosingReason.REBALANCE, final=False)
    signal.ask(ClosingReason.PAUSE)
    signal.ask(ClosingReason.SHUTDOWN)
    signal.ask(ClosingReason.REBALANCE, final=False)

    assert signal.reason is ClosingReason.PAUSE
    assert signal.is_final
