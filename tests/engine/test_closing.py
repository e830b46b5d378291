"""Closing partitions: KIP-275's flag, the order of calls, and which partitions are closed."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from sinksdk import (
    ClosingReason,
    ConnectException,
    OffsetAndMetadata,
)
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Letters, Offsets, Sink, TwoPhaseSink


def started(sink: Callable[[], Sink] = Sink, **options: object) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, **options)
    harness.start()
    return harness


# -- is_closing() ------------------------------------------------------------------------------------


def test_is_closing_is_true_for_exactly_the_closing_pre_commit() -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P0, ["b"])
    harness.stop()

    told = [(call.name, call.is_closing) for call in harness.calls]
    assert told == [
        ("initialize", False),
        ("start", False),
        ("open", False),
        ("put", False),
        ("pre_commit", False),
        ("publish", False),
        ("put", False),
        ("pre_commit", True),
        ("publish", False),
        ("close", False),
        ("stop", False),
    ]


def test_is_closing_is_true_up_to_the_end_of_pre_commit() -> None:
    seen = []

    class Flushing(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            seen.append(self.context.is_closing())
            returned = super().pre_commit(offsets)
            seen.append(self.context.is_closing())
            return returned

        def flush(self, offsets: Offsets) -> None:
            seen.append(self.context.is_closing())

    harness = started(Flushing)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert seen == [True, True, True]


def test_is_closing_is_false_during_the_commit_write() -> None:
    # is_closing() is False while the commit is written. KIP-275's text would leave it True.
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    save, seen = harness.log._save, []

    def saving(record: object) -> None:
        seen.append(harness.task.context.is_closing())
        save(record)

    harness.log._save = saving
    harness.revoke()
    assert seen == [False]


@pytest.mark.parametrize("method", ["pre_commit", "publish", "close"])
def test_is_closing_is_reset_after_an_exception(method: str) -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults[method].append(ConnectException("no"))
    harness.revoke()
    assert not harness.task.context.is_closing()
    assert harness.task.context.closing_reason() is None


def test_is_closing_is_true_at_each_revocation() -> None:
    harness = started()
    harness.assign(P0, P1)
    for partition in (P0, P1):
        harness.deliver(partition, ["a"])
        harness.revoke(partition)
    harness.assign(P0)
    harness.deliver(P0, ["b"])
    harness.stop()
    assert [call.is_closing for call in harness.called("pre_commit")] == [True, True, True]


def test_is_closing_can_be_read_from_a_thread_of_the_task() -> None:
    seen = []

    class Threaded(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            thread = threading.Thread(target=lambda: seen.append(self.context.is_closing()))
            thread.start()
            thread.join()
            return offsets

    harness = started(Threaded)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P0, ["b"])
    harness.revoke()
    assert seen == [False, True]


@pytest.mark.parametrize("reason", list(ClosingReason))
def test_closing_reason_is_that_of_the_close_request(reason: ClosingReason) -> None:
    # closing_reason() returns the reason inside the closing pre_commit, and None before and after. In
    # Connect, pausing does not close partitions; here it ends the generation, which closes them.
    seen = []

    class Asking(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            seen.append((self.context.is_closing(), self.context.closing_reason()))
            return offsets

    harness = started(Asking)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P0, ["b"])
    harness.revoke(reason=reason)
    assert seen == [(False, None), (True, reason)]
    assert harness.task.context.closing_reason() is None


def test_deadline_counts_down_while_closing() -> None:
    seen = []

    class Slow(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            seen.append(self.context.deadline())
            harness.clock.advance(4)
            seen.append(self.context.deadline())
            harness.clock.advance(40)
            seen.append(self.context.deadline())
            return offsets

    harness = started(Slow)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P0, ["b"])
    harness.revoke(timeout=10.0)
    assert seen == [None, None, None, 10.0, 6.0, 0.0]
    assert harness.task.context.deadline() is None


def test_is_closing_is_true_in_the_pre_commit_after_a_failed_put() -> None:
    harness = started(BufferingSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a", "b"])
    harness.deliver(P1, ["x"])
    harness.task.faults["put"].append(ConnectException("disk full"))
    harness.deliver(P0, ["c"])

    (closing,) = harness.called("pre_commit")
    assert closing.is_closing
    assert closing.arguments == ({P0: OffsetAndMetadata(2)},)
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    assert harness.called("close")[0].arguments == ([P0],)
    assert "disk full" in harness.outcome(P0).failure.trace


# -- order -------------------------------------------------------------------------------------------


def test_closing_calls_pre_commit_commit_publish_and_close_in_this_order() -> None:
    events = []

    class Letter(Letters):
        def send(self, record: object) -> object:
            future = super().send(record)
            future.result = lambda: events.append("awaited")
            return future

    class Ordered(TwoPhaseSink):
        def put(self, records: object) -> None:
            super().put(records)
            self.context.errant_record_reporter().report(records[0], ValueError("bad"))

        def pre_commit(self, offsets: Offsets) -> Offsets:
            events.append("pre_commit")
            return super().pre_commit(offsets)

        def publish(self, partition: object, tokens: object) -> None:
            events.append("publish")

        def close(self, partitions: object) -> None:
            events.append("close")

    harness = started(Ordered, dead_letters=Letter(), options=EngineOptions(tolerate_errors=True))
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    commit = harness.log.commit
    harness.log.commit = lambda *given: (events.append("commit"), commit(*given))
    harness.revoke()
    assert events == ["awaited", "pre_commit", "commit", "publish", "close"]


def test_a_failing_close_costs_no_progress(caplog: pytest.LogCaptureFixture) -> None:
    # The commit comes before close, so that a failing close undoes nothing, as it would in Connect.
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a", "b"])
    harness.task.faults["close"].append(ConnectException("connection reset"))
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    assert harness.outcome(P0).failure is None
    assert "close of flights-0 raised" in caplog.text
    assert "connection reset" in caplog.text


def test_partial_batches_are_flushed_and_committed_on_close() -> None:
    harness = started(BufferingSink)
    harness.assign(P0)
    harness.deliver(P0, ["a", "b", "c", "d", "e"])
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(5)}
    assert harness.task.files == [(P0, [0, 1, 2]), (P0, [3, 4])]


# -- which partitions --------------------------------------------------------------------------------


def test_pre_commit_gets_only_the_partitions_being_closed() -> None:
    harness = started(BufferingSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x", "y"])
    harness.revoke(P0)

    assert harness.called("pre_commit")[0].arguments == ({P0: OffsetAndMetadata(1)},)
    assert harness.called("close")[0].arguments == ([P0],)
    assert harness.task.context.assignment() == {P1}

    harness.deliver(P1, ["z"])
    harness.commit()
    assert not harness.called("pre_commit")[1].is_closing
    assert harness.committed == {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(3)}
    assert (P1, [0, 1, 2]) in harness.task.files


def test_pre_commit_is_not_called_without_delivered_records() -> None:
    harness = started()
    harness.assign(P0, P1)
    harness.deliver(P1, ["x"])
    harness.revoke()
    assert harness.called("pre_commit")[0].arguments == ({P1: OffsetAndMetadata(1)},)
    assert harness.called("close")[0].arguments == ([P0, P1],)

    harness.assign(P0)
    harness.revoke()
    assert len(harness.called("pre_commit")) == 1
    assert harness.called("close")[1].arguments == ([P0],)
    assert not harness.task.context.is_closing()


def test_pre_commit_is_not_called_without_new_records() -> None:
    # A partition without new records since its last commit gets no pre_commit, but is closed.
    harness = started()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.revoke()
    assert harness.names()[-1] == "close"
    assert len(harness.called("pre_commit")) == 1


def test_lost_partitions_are_closed_and_nothing_is_committed() -> None:
    harness = started(TwoPhaseSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.lose(P0)

    assert harness.names()[-1] == "close"
    assert harness.calls[-1].arguments == ([P0],)
    assert not harness.calls[-1].is_closing
    assert harness.called("pre_commit") == harness.called("discard") == []
    harness.commit()
    assert harness.committed.keys() == {P1}


def test_each_partition_is_closed_exactly_once() -> None:
    harness = started()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.revoke(P0)
    harness.revoke(P0)
    harness.lose(P0)
    harness.stop()
    assert [call.arguments for call in harness.called("close")] == [([P0],), ([P1],)]


def test_a_revoked_partition_never_resurfaces() -> None:
    # A revoked partition gets no pre_commit and no close at shutdown (KAFKA-19685).
    harness = started(BufferingSink)
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.revoke(P0)
    harness.stop()
    assert [set(call.arguments[0]) for call in harness.called("pre_commit")] == [{P0}, {P1}]
    assert [call.arguments[0] for call in harness.called("close")] == [[P0], [P1]]


def test_a_reassigned_partition_starts_without_its_old_state() -> None:
    harness = started(BufferingSink)
    harness.assign(P0)
    harness.deliver(P0, ["a", "b"])
    harness.lose(P0)
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.revoke()
    assert harness.task.files == [(P0, [0])]
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert len(harness.called("close")) == 2
