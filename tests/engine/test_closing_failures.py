"""Closing continues after any failure: what is closed, committed and reported."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from sinksdk import (
    ConnectException,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
)
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Letters, Offsets, Sink, TwoPhaseSink


def started(sink: Callable[[], Sink] = Sink, **options: object) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, **options)
    harness.start()
    return harness


@pytest.mark.parametrize(
    "garbage", [None, 7, "offsets", [P0], {P0: 7}, {P0: None}, {"x": OffsetAndMetadata(1)}]
)
def test_is_closing_is_reset_after_an_invalid_pre_commit_result(garbage: object) -> None:
    class Garbage(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            return garbage

    harness = started(Garbage)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert not harness.task.context.is_closing()
    assert harness.committed == {}
    assert harness.names()[-1] == "close"


def test_is_closing_is_reset_when_the_commit_is_fenced() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.fence()
    with pytest.raises(FencedException):
        harness.revoke()
    assert not harness.task.context.is_closing()


def test_is_closing_is_never_set_when_a_dead_letter_fails_before_pre_commit() -> None:
    class Reporting(Sink):
        def put(self, records: object) -> None:
            self.context.errant_record_reporter().report(records[0], ValueError("bad"))

    letters = Letters(automatic=False)
    harness = started(Reporting, dead_letters=letters, options=EngineOptions(tolerate_errors=True))
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    letters.futures[0].set_exception(OSError("the dead letters are gone"))
    harness.revoke()
    assert not harness.task.context.is_closing()
    assert harness.names()[-2:] == ["put", "close"]
    assert harness.committed == {}


def test_a_fenced_task_is_closed_without_a_commit() -> None:
    # is_closing() is true even if the commit will be refused, as in Connect during a cancellation.
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.fence()
    with pytest.raises(FencedException):
        harness.stop()
    assert [call.is_closing for call in harness.called("pre_commit")] == [True]
    assert harness.committed == {}
    assert harness.names()[-2:] == ["close", "stop"]


def test_a_partition_whose_open_failed_is_not_closed() -> None:
    harness = started()
    harness.task.faults["open"].append(ConnectException("no such table"))
    harness.assign(P0)
    harness.assign(P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.stop()
    assert [call.arguments[0] for call in harness.called("close")] == [[P1]]
    assert [call.arguments[0].partition for call in harness.called("put")] == [P1]
    assert "no such table" in harness.outcome(P0).failure.message
    assert harness.committed == {P1: OffsetAndMetadata(1)}


def test_a_partition_whose_open_was_fenced_is_not_closed() -> None:
    class Noting(Sink):
        def open(self, partitions: object) -> None:
            self.context.prepared({P0: ["session"]})

    harness = started(Noting)
    harness.fence()
    with pytest.raises(FencedException):
        harness.assign(P0)
    assert harness.called("close") == []


@pytest.mark.parametrize(
    "error", [ConnectException("bucket gone"), RetriableException("slow down"), KeyError("x")]
)
def test_an_exception_of_the_closing_pre_commit_fails_the_partition(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults["pre_commit"].append(error)
    harness.revoke()

    assert harness.committed == {}
    assert harness.names()[-1] == "close"
    failure = harness.outcome(P0).failure
    assert failure.kind == type(error).__name__
    assert "Traceback" in failure.trace
    logged = next(record for record in caplog.records if record.levelno >= logging.ERROR)
    assert logged.exc_info[1] is error
    assert "connector harness, task 0, generation 1: flights-0 failed at offset 1" in logged.getMessage()


def test_a_fence_while_closing_is_raised_although_close_fails() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.fence()
    harness.task.faults["close"].append(ConnectException("close failed too"))
    with pytest.raises(FencedException):
        harness.revoke()
    assert harness.names()[-1] == "close"


def test_closing_without_open_partitions_has_no_effect() -> None:
    harness = started()
    harness.revoke()
    harness.revoke(P0)
    harness.lose(P1)
    assert harness.names() == ["initialize", "start"]


def test_stop_is_not_followed_by_a_closing_commit() -> None:
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    harness.revoke()
    harness.stop()
    assert harness.names()[-2:] == ["close", "stop"]
    assert harness.names().count("stop") == 1


@pytest.mark.parametrize("method", ["put", "pre_commit", "publish"])
def test_a_task_that_raises_a_fenced_exception_is_closed_without_a_commit(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    before = len(harness.calls)
    harness.task.faults[method].append(FencedException("generation 1 does not own the rows any more"))
    harness.deliver(P0, ["b"])
    harness.commit()

    assert "discard" not in harness.names()[before:]
    assert not any(call.is_closing for call in harness.calls)
    assert harness.names()[-1] == "close"
    assert harness.outcome(P0).failure.kind == "FencedException"
    if method == "put":
        assert P0 not in harness.committed
    logged = [record for record in caplog.records if "nothing more is written" in record.getMessage()]
    assert logged
    assert all(record.levelno == logging.WARNING and not record.exc_info for record in logged)
