"""An operator's requests, as a driver sees them."""

from __future__ import annotations

import logging

import pytest

from sinksdk import ClosingReason, ConnectException, RetriableException
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal, ConnectorRequests, PendingRequests
from sinksdk.store import StoreRefused
from sinksdk.testing import ManualClock
from tests.helpers.memory_store import MemoryStore


class Refusing(MemoryStore):
    refuses = False

    def version(self, key: str) -> str | None:
        if self.refuses:
            message = "permission denied"
            raise StoreRefused(message)
        return super().version(key)


def test_an_outage_of_reading_requests_is_logged_at_begin_and_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # The driver polls each second, and must not log the same line each time.
    store = Refusing()
    Herder(store).create("c", {"name": "c", "topics": "t"})
    requests = PendingRequests(store, "c", ManualClock())
    requests.follow(registry.find(store, "c"))
    requests.refresh(now=True)
    for refuses in (True, True, True, False, False):
        store.refuses = refuses
        requests.refresh(now=True)

    first, last = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert first == "connector c: cannot read the operator's requests, retrying: permission denied"
    assert last.startswith("reading the operator's requests of connector c works again after")


def test_the_first_final_closing_reason_is_kept() -> None:
    # Regression: leaving the block of ``sinksdk.start`` turned the reason given to ``close`` into SHUTDOWN.
    signal = ClosingSignal()
    signal.request(ClosingReason.REBALANCE, final=False)
    signal.request(ClosingReason.PAUSE)
    signal.request(ClosingReason.SHUTDOWN)
    signal.request(ClosingReason.REBALANCE, final=False)

    assert signal.reason is ClosingReason.PAUSE
    assert signal.is_final


def test_a_request_of_a_connector_stays_pending_until_it_is_cleared() -> None:
    # The signal may be cleared while nothing runs; the request waits for the next tasks.
    signal = ClosingSignal()
    requests = ConnectorRequests("c", signal)
    assert requests.closing() is None
    requests.request_task_reconfiguration()
    requests.request_task_reconfiguration()
    assert signal.reason is ClosingReason.REBALANCE
    assert not signal.is_final
    signal.clear()

    assert requests.closing() is ClosingReason.REBALANCE
    requests.clear()
    assert requests.closing() is None
    assert signal.reason is None


def test_a_request_of_a_connector_does_not_replace_a_final_one() -> None:
    signal = ClosingSignal()
    requests = ConnectorRequests("c", signal)
    signal.request(ClosingReason.SHUTDOWN)
    requests.request_task_reconfiguration()
    requests.clear()

    assert signal.reason is ClosingReason.SHUTDOWN


def test_a_connectors_first_error_is_raised_unchanged_if_it_is_a_connect_exception() -> None:
    requests = ConnectorRequests("c", ClosingSignal())
    requests.expect_no_error()
    requests.raise_error(RetriableException("the database is away"))
    requests.raise_error(OSError("and more"))
    assert requests.closing() is ClosingReason.FAILURE
    with pytest.raises(RetriableException, match="the database is away"):
        requests.expect_no_error()

    other = ConnectorRequests("c", ClosingSignal())
    other.raise_error(OSError("no slot"))
    with pytest.raises(ConnectException, match="connector c has raised an error: OSError: no slot"):
        other.expect_no_error()


def test_requests_of_a_stopped_connector_have_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    # The exception is logged, because it is raised nowhere else.
    signal = ClosingSignal()
    requests = ConnectorRequests("c", signal)
    requests.end()
    requests.request_task_reconfiguration()
    requests.raise_error(OSError("too late"))

    assert (signal.reason, requests.closing(), requests.has_failed) == (None, None, False)
    (cause,) = [record.exc_info[1] for record in caplog.records if record.exc_info]
    assert str(cause) == "too late"
