"""A connector's own code runs next to the driver's thread: a hanging call is reported and abandoned."""

from __future__ import annotations

import re
import threading
from asyncio import CancelledError
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import ConnectException, SinkConnector
from sinksdk.control.connector_calls import ConnectorCalls, HangingException
from sinksdk.engine.clock import SystemWallClock


class Declared(SinkConnector):
    stopped: Any = "never"


class Old(Declared):
    def stop(self) -> None:  # type: ignore[override]  # as Connect's connectors declare it
        self.stopped = "without a flag"


class New(Declared):
    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self.stopped = is_deleted


class Otherwise(Declared):
    def stop(self, gone: bool) -> None:  # type: ignore[override]  # by another name
        self.stopped = gone


class ByName(Declared):
    def stop(self, *, is_deleted: bool = False) -> None:  # type: ignore[override]  # by its name only
        self.stopped = is_deleted


class Anyhow(Declared):
    def stop(self, *flags: bool, **named: bool) -> None:
        self.stopped = named["is_deleted"]


class AnyPlaces(Declared):
    def stop(self, *flags: bool) -> None:
        (self.stopped,) = flags


class ByPlace(Declared):
    def stop(self, is_deleted: bool = False, /) -> None:  # noqa: FBT002 - KIP-883's signature
        self.stopped = is_deleted


class NotFirst(Declared):
    def stop(self, timeout: float = 5.0, is_deleted: bool = False) -> None:  # type: ignore[override]  # noqa: FBT002 - a number comes first
        self.stopped = is_deleted if timeout == 5.0 else timeout


class ANumber(Declared):
    def stop(self, timeout: float = 5.0) -> None:
        self.stopped = timeout


@pytest.fixture
def never() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def author(connector: SinkConnector | None = None) -> ConnectorCalls:
    return ConnectorCalls(connector or New(), "archive", SystemWallClock())


@pytest.mark.parametrize(
    ("connector", "expected"),
    [
        (Old(), "without a flag"),
        (New(), True),
        (Otherwise(), True),
        (ByName(), True),
        (Anyhow(), True),
        (AnyPlaces(), True),
        (ByPlace(), True),
        (NotFirst(), True),
        (ANumber(), 5.0),
    ],
    ids=lambda value: type(value).__name__,
)
def test_stop_receives_the_flag_if_its_signature_has_one(connector: Declared, expected: object) -> None:
    # Connectors written before KIP-883 define ``stop`` without a parameter.
    author(connector).stop(is_deleted=True, timeout=5)
    assert connector.stopped == expected


def test_all_calls_come_from_one_thread() -> None:
    threads: list[int] = []
    calls = author()
    for what in ("start", "task_configs"):
        calls.call(what, lambda: threads.append(threading.get_ident()), timeout=5)
    assert len(threads) == 2
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_ident()


def test_an_exception_of_a_call_is_raised_to_the_caller() -> None:
    def refuse() -> None:
        message = "no bucket"
        raise ConnectException(message)

    with pytest.raises(ConnectException, match="no bucket"):
        author().call("start", refuse, timeout=5)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), CancelledError()])
def test_a_system_exit_in_a_call_becomes_a_connect_exception(error: BaseException) -> None:
    def leaves() -> None:
        raise error

    with pytest.raises(
        ConnectException, match=f"connector archive: start raised {type(error).__name__}"
    ) as caught:
        author().call("start", leaves, timeout=5)
    assert caught.value.__cause__ is error
    author().stop(is_deleted=False, timeout=5)


def test_a_hanging_call_is_abandoned_and_its_stack_reported(never: threading.Event) -> None:
    with pytest.raises(HangingException) as raised:
        # By the time-out the thread has reached this line.
        author().call("start", lambda: never.wait(20), timeout=1.0)
    reported = re.search(r"connector archive: start has not returned for (\d+\.\d) s", str(raised.value))
    assert reported
    assert float(reported[1]) >= 1
    assert "never.wait(20)" in str(raised.value)
    assert "runtime/author.py" not in str(raised.value)


def test_the_call_after_a_hanging_one_does_not_wait_for_it(never: threading.Event) -> None:
    # stop() may release the resource at which start() hangs.
    connector = New()
    calls = author(connector)
    with pytest.raises(HangingException):
        calls.call("start", lambda: never.wait(20), timeout=0.1)
    calls.stop(is_deleted=False, timeout=5)
    assert connector.stopped is False


def test_a_call_whose_result_is_unwanted_ends_after_its_grace(never: threading.Event) -> None:
    with pytest.raises(HangingException) as raised:
        author().call("start", lambda: never.wait(120), timeout=60, is_unwanted=lambda: True, grace=0.1)
    reported = re.search(r"has not returned for (\d+\.\d) s", str(raised.value))
    assert reported
    assert 0.1 <= float(reported[1]) < 30
