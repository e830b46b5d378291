"""Only offsets that put has accepted may be committed, and never lower ones than before."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from sinksdk import (
    ConnectException,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
)
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, P2, BufferingSink, Offsets, Sink, rows


class Answering(Sink):
    answer: object = MappingProxyType({})

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return self.answer


# -- which offsets are offered -----------------------------------------------------------------------


def test_offsets_advance_only_after_put_returns() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    seen = []

    class Watching(Exception):
        pass

    def put(records: SinkRecords) -> None:
        seen.append(harness.outcome(P0).position)
        raise Watching

    harness.task.put = put
    harness.deliver(P0, ["b"])
    assert seen == [1]
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_offsets_advance_over_gaps() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 3, 4, 90))
    harness.deliver(P0, rows(P0, 200))
    harness.commit()
    assert harness.called("pre_commit")[0].arguments == ({P0: OffsetAndMetadata(201)},)


def test_offsets_advance_over_filtered_records() -> None:
    # A commit also covers records that a transform has dropped, even if it dropped the whole batch
    # (KAFKA-5567).
    harness = SinkTaskHarness(
        Sink,
        options=EngineOptions(tolerate_errors=True, value_converter=lambda topic, data: 1 // int(data)),
    )
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["1", "0", "1", "0"])
    harness.deliver(P0, ["0", "0"])
    assert harness.task.taken == {P0: [0, 2]}
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(6)}


def test_records_below_the_commit_are_not_put_again() -> None:
    harness = SinkTaskHarness(Sink, committed={P0: 5})
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    harness.deliver(P0, rows(P0, 3, 4, 7, 8))
    assert harness.task.taken == {P0: [7, 8]}


def test_records_of_a_revoked_partition_are_not_put() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.revoke(P0)
    harness.deliver(P0, ["b"])
    harness.deliver(P2, ["stranger"])
    harness.deliver(P1, ["x"])
    assert harness.task.taken == {P0: [0], P1: [0]}


# -- periodic commits --------------------------------------------------------------------------------


def test_commits_are_periodic() -> None:
    harness = SinkTaskHarness(Sink, options=EngineOptions(commit_interval=10))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.advance(9.9)
    assert harness.committed == {}
    assert harness.worker.wait() == pytest.approx(0.1)
    harness.advance(0.1)
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    harness.advance(10)
    assert len(harness.called("pre_commit")) == 1


def test_a_failed_periodic_pre_commit_fails_its_partitions() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.task.faults["pre_commit"].append(ConnectException("bucket gone"))
    harness.commit()

    assert harness.committed == {}
    assert "bucket gone" in harness.outcome(P0).failure.message
    assert [call.arguments[0] for call in harness.called("close")] == [[P0]]
    harness.deliver(P0, ["b"])
    harness.deliver(P1, ["x"])
    harness.stop()
    assert harness.task.taken == {P0: [0], P1: [0]}
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert harness.outcome(P1).failure is None


def test_a_failed_pre_commit_drops_the_pending_batch() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.task.faults["put"].append(RetriableException("busy"))
    harness.deliver(P0, ["b"])
    harness.task.faults["pre_commit"].append(ConnectException("no"))
    harness.commit()
    harness.advance(3600)
    assert harness.task.taken == {P0: [0]}
    assert harness.committed == {}
    assert not harness.worker.pending


# -- figures -----------------------------------------------------------------------------------------


def test_uncommitted_records_are_counted_from_the_first_record() -> None:
    harness = SinkTaskHarness(BufferingSink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 5, 6))
    assert harness.outcome(P0).tail == 3
    harness.deliver(P0, rows(P0, 7, 100))
    outcome = harness.outcome(P0)
    assert (outcome.tail, outcome.records, outcome.position, outcome.committed) == (5, 5, 101, None)
    harness.commit()
    outcome = harness.outcome(P0)
    assert (outcome.tail, outcome.records, outcome.position, outcome.committed) == (2, 5, 101, 7)


def test_uncommitted_records_are_counted_within_batches() -> None:
    harness = SinkTaskHarness(Answering, committed={P0: 100})
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 100, 101, 102, 103))
    harness.deliver(P0, rows(P0, 110, 120, 130))
    for offset, tail in ((101, 6), (103, 4), (104, 3), (110, 3), (111, 2), (125, 1), (131, 0)):
        harness.task.answer = {P0: OffsetAndMetadata(offset)}
        harness.commit()
        assert (harness.committed[P0].offset, harness.outcome(P0).tail) == (offset, tail)


# -- the store -----------------------------------------------------------------------------------------


def test_a_fence_swallowed_by_the_task_is_still_raised() -> None:
    class Swallowing(Sink):
        def put(self, records: SinkRecords) -> None:
            try:
                self.context.prepared({P0: ["upload-0"]})
            except FencedException:
                return

    harness = SinkTaskHarness(Swallowing)
    harness.start()
    harness.assign(P0)
    harness.fence()
    with pytest.raises(FencedException):
        harness.deliver(P0, ["a"])
    assert harness.outcome(P0).position == 0
    assert harness.names()[-1] == "close"


@pytest.mark.parametrize("swallowed", [ConnectException, KeyError])
def test_a_fence_wrapped_by_the_task_is_still_raised(swallowed: type) -> None:
    class Turning(Sink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            try:
                self.context.prepared({P0: ["upload-0"]})
            except FencedException as error:
                raise swallowed from error

    harness = SinkTaskHarness(Turning)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.fence()
    with pytest.raises(FencedException):
        harness.commit()


def test_opening_an_open_partition_again_is_refused() -> None:
    # If a partition could be opened twice, the second opening would lose the state of the first.
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    with pytest.raises(RuntimeError, match="flights-0 is open already"):
        harness.assign(P0)
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(1)}
