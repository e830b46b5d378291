"""Requests of a task through its context: another position, a commit, the end of a partition."""

from __future__ import annotations

import pytest

from sinksdk import (
    ConnectException,
    OffsetAndMetadata,
    SinkRecords,
    TopicPartition,
)
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Offsets, Sink, TwoPhaseSink


def test_request_commit_takes_effect_when_put_returns() -> None:
    class Eager(Sink):
        def put(self, records: SinkRecords) -> None:
            super().put(records)
            self.context.request_commit()

    harness = SinkTaskHarness(Eager)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert not harness.called("pre_commit")[0].is_closing


def test_request_commit_in_pre_commit_causes_another_commit() -> None:
    class Again(BufferingSink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            if not self.files:
                self.context.request_commit()
            return super().pre_commit(offsets)

    harness = SinkTaskHarness(Again)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a", "b", "c", "d"])
    harness.commit()
    assert harness.worker.wait() == 0
    harness.tick()
    assert len(harness.called("pre_commit")) == 2
    harness.tick()
    assert len(harness.called("pre_commit")) == 2


def test_requesting_another_offset_outside_open_fails_the_partition() -> None:
    class Rewinding(Sink):
        def put(self, records: SinkRecords) -> None:
            super().put(records)
            if records.first_offset == 1:
                self.context.offset({P0: 0})

    harness = SinkTaskHarness(Rewinding)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.commit()
    harness.deliver(P0, ["b"])
    assert harness.task.context.assignment() == {P1}
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert (
        "requested offset 0 of flights-0 outside open, while at offset 2"
        in harness.outcome(P0).failure.message
    )
    assert harness.outcome(P0).tail == 1


def test_requesting_the_current_offset_has_no_effect() -> None:
    class OwnOffsets(Sink):
        def open(self, partitions: object) -> None:
            self.context.offset({P0: 7})

    harness = SinkTaskHarness(OwnOffsets, committed={P0: 7})
    harness.start()
    harness.assign(P0)
    assert harness.task.context.assignment() == {P0}
    assert harness.outcome(P0).failure is None


def test_requesting_an_offset_of_an_unassigned_partition_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    # context.offset in start(), or for a partition that is not open, is ignored with a warning (KAFKA-10370).

    class Early(Sink):
        def start(self, config: object) -> None:
            self.context.offset({P0: 3})

    harness = SinkTaskHarness(Early)
    harness.start()
    assert "context.offset got flights-0 at offset 3, which is not open in this task; ignored" in caplog.text
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_context_fail_fails_only_the_given_partition() -> None:
    class OneBad(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.context.fail(P0, ConnectException("its bucket is gone"))
            return {P1: offsets[P1]}

    harness = SinkTaskHarness(OneBad)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.commit()
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert harness.outcome(P0).failure.message == "its bucket is gone"
    assert harness.task.context.assignment() == {P1}


def test_offsets_returned_for_a_partition_failed_in_pre_commit_are_committed() -> None:
    class HalfWay(TwoPhaseSink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            self.context.fail(P0, ConnectException("the rest does not go"))
            return super().pre_commit(offsets)

    harness = SinkTaskHarness(HalfWay)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    assert harness.names()[-3:] == ["pre_commit", "publish", "close"]
    assert harness.committed[P0].offset == 1
    assert harness.outcome(P0).failure.message == "the rest does not go"


def test_context_fail_of_an_unassigned_partition_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.task.context.fail(P0, ConnectException("x"))
    assert "context.fail got flights-0, which is not open in this task; ignored" in caplog.text


def test_requests_of_a_closed_partition_are_dropped() -> None:
    class Late(TwoPhaseSink):
        def discard(self, partition: TopicPartition, tokens: object) -> None:
            self.context.fail(P0, ConnectException("late"))
            self.context.offset({P0: 77})

    harness = SinkTaskHarness(Late)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults["pre_commit"].append(ConnectException("no"))
    harness.revoke()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    assert harness.outcome(P0).failure is None
    assert harness.committed[P0].offset == 1


def test_outcomes_contain_the_counts_of_the_task() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1)
    harness.task.context.count(P0, files=1, bytes=100)
    harness.task.context.count(P0, files=1, bytes=20)
    assert harness.outcome(P0).counts == {"files": 2, "bytes": 120}
    assert harness.outcome(P1).counts == {}
