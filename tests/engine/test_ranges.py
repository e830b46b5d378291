"""The end of a range: its commit covers everything delivered, and is a closing one when the range is due."""

from __future__ import annotations

import copy

import pytest

from sinksdk import ClosingReason, ConnectException, OffsetAndMetadata, OffsetRange, Token
from sinksdk.engine.partition import PartitionState
from sinksdk.model.plan import RangePlan
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Offsets, Sink, TwoPhaseSink, rows


def reading(limits: OffsetRange, sink: type[Sink] = Sink, **options: object) -> SinkTaskHarness:
    harness = SinkTaskHarness(sink, **options)
    harness.start()
    harness.assign(P0, limits=limits)
    return harness


def test_trailing_gaps_are_committed_with_the_last_record() -> None:
    harness = reading(OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, 0, 1, 7))
    writes = []
    save = harness.log._save
    harness.log._save = lambda record: (writes.append(record), save(record))
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert len(writes) == 1
    assert harness.outcome(P0).position == harness.outcome(P0).read_to == 10


def test_trailing_gaps_are_committed_after_an_earlier_commit() -> None:
    harness = reading(OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, 0, 1))
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert len(harness.called("pre_commit")) == 1


def test_a_range_without_records_is_committed() -> None:
    harness = reading(OffsetRange(5, 10), committed={P0: OffsetAndMetadata(5, "mine")})
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10, "mine")}
    assert harness.called("pre_commit") == []
    assert harness.names()[-1] == "close"


def test_tokens_of_the_last_record_cover_the_trailing_gaps() -> None:
    harness = reading(OffsetRange(0, 10), TwoPhaseSink)
    harness.deliver(P0, rows(P0, 0, 3))
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert harness.task.world.offsets(P0) == [0, 3]


def test_records_held_back_by_the_sink_stay_uncommitted() -> None:
    harness = reading(OffsetRange(0, 10), BufferingSink)
    harness.deliver(P0, rows(P0, 0, 2, 4, 6, 8))
    harness.finish(P0)
    assert [call.is_closing for call in harness.called("pre_commit")] == [False]
    assert harness.committed == {P0: OffsetAndMetadata(5)}
    outcome = harness.outcome(P0)
    assert (outcome.tail, outcome.position, outcome.read_to) == (2, 9, 10)
    assert harness.names()[-1] == "close"


def test_is_closing_is_true_at_the_end_of_a_due_range() -> None:
    reasons = []

    class Asking(BufferingSink):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            reasons.append(self.context.closing_reason())
            return super().pre_commit(offsets)

    harness = reading(OffsetRange(0, 10), Asking)
    harness.deliver(P0, rows(P0, 0, 2, 4, 6, 8))
    harness.finish(P0, ClosingReason.DUE)
    assert reasons == [ClosingReason.DUE]
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert harness.outcome(P0).tail == 0


def test_the_end_of_a_range_is_not_committed_when_its_last_records_are_not() -> None:
    harness = reading(OffsetRange(0, 10), BufferingSink)
    harness.deliver(P0, rows(P0, 0, 1, 2, 3))
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize("method", ["pre_commit", "publish"])
def test_the_end_of_a_range_that_failed_is_not_committed(method: str) -> None:
    harness = reading(OffsetRange(0, 10), TwoPhaseSink)
    harness.deliver(P0, rows(P0, 0, 1))
    harness.commit()
    harness.deliver(P0, rows(P0, 2))
    harness.task.faults[method].append(ConnectException("no"))
    harness.finish(P0)
    (token,) = harness.committed[P0].publish or (None,)
    assert harness.committed[P0].offset == (2 if method == "pre_commit" else 10)
    assert token == (None if method == "pre_commit" else Token("upload-1", {"first": 2}))


def test_an_interrupted_range_is_not_committed_to_its_end() -> None:
    harness = reading(OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, 0, 1))
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    outcome = harness.outcome(P0)
    assert (outcome.position, outcome.read_to) == (2, 2)


def test_the_end_of_a_range_closes_only_its_partition() -> None:
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1, limits=OffsetRange(0, 5))
    harness.deliver(P0, rows(P0, 0))
    harness.finish(P0)
    harness.deliver(P1, rows(P1, 0))
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(1)}
    assert [call.arguments[0] for call in harness.called("close")] == [[P0], [P1]]


def test_records_beyond_the_range_fail_the_partition() -> None:
    harness = reading(OffsetRange(0, 3))
    harness.deliver(P0, rows(P0, 0, 1))
    harness.deliver(P0, rows(P0, 2, 3))
    assert (
        "delivers offset 3, beyond the range, whose end offset (exclusive) is 3"
        in harness.outcome(P0).failure.message
    )
    assert harness.committed == {P0: OffsetAndMetadata(2)}


def test_a_range_above_the_commit_is_committed_to_its_end() -> None:
    harness = reading(OffsetRange(50, 60), committed={P0: 10})
    harness.deliver(P0, rows(P0, 55))
    assert harness.task.taken == {P0: [55]}
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(60)}


def test_a_range_resumes_after_the_commit_of_an_earlier_attempt() -> None:
    harness = reading(OffsetRange(0, 10), committed={P0: 4})
    harness.deliver(P0, rows(P0, 0, 1, 2))
    harness.deliver(P0, rows(P0, 3, 4, 5))
    assert harness.task.taken == {P0: [4, 5]}
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(10)}


def test_a_range_finished_by_an_earlier_attempt_is_not_read() -> None:
    harness = reading(OffsetRange(0, 10), committed={P0: 10})
    before = harness.log.saved
    harness.deliver(P0, rows(P0, 0, 9))
    harness.finish(P0)
    assert harness.log.saved is before
    assert harness.called("put") == []
    assert harness.names()[-1] == "close"


def test_finishing_a_closed_partition_has_no_effect() -> None:
    harness = reading(OffsetRange(0, 10))
    harness.task.faults["put"].append(ConnectException("no"))
    harness.deliver(P0, rows(P0, 0))
    calls = len(harness.calls)
    harness.finish(P0, ClosingReason.DUE)
    assert len(harness.calls) == calls
    assert harness.committed == {}


def test_queries_of_a_partition_state_do_not_change_it() -> None:
    state = PartitionState(RangePlan.of(P0, 0, 10, records=1), 0, 0)
    state.accept(rows(P0, 3))
    state.is_exhausted = True
    before = copy.deepcopy(state)
    assert state.range_end(4) == 10
    assert state.to_range_end(OffsetAndMetadata(4)) == OffsetAndMetadata(10)
    assert state.range_end(3) is None, "a record is not committed yet"
    assert len(state.within_limit(rows(P0, 4, 5))) == 0
    assert state.flaw(rows(P0, 12), None, "") is not None
    assert state.flaw(rows(P0, 9), None, "") is None
    assert (state.position, state.seen, state.is_cut) == (before.position, before.seen, before.is_cut)
    state.note_commit(10)
    assert (state.position, state.accepted.tail(0)) == (10, 0)
