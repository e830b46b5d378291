"""What may be committed: offsets accepted by put, never beyond, never back."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from sinksdk import (
    ConnectException,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    Token,
    TopicPartition,
)
from sinksdk.engine import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, P2, BufferingSink, Offsets, Sink, TwoPhaseSink, rows


class Answering(Sink):
    """``pre_commit`` returns ``answer``."""

    answer: object = MappingProxyType({})

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return self.answer


def answering(answer: object, **options: object) -> SinkTaskHarness:
    """A harness with three records accepted in P0, whose next pre_commit gives that answer."""
    harness = SinkTaskHarness(Answering, **options)
    harness.start()
    harness.assign(P0)
    first = harness.position(P0)
    harness.deliver(P0, rows(P0, first, first + 1, first + 2))
    harness.task.answer = answer
    return harness


# -- what pre_commit may return ----------------------------------------------------------------------


def test_a_partition_that_is_not_part_of_the_commit_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """pre_commit may not return a partition that is not part of this commit: ignored with a warning."""
    harness = answering({P0: OffsetAndMetadata(2), P1: OffsetAndMetadata(1)})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    assert (
        "connector harness, task 0, generation 1: pre_commit returned 1 for flights-1, "
        "which is not part of this commit" in caplog.text
    )


def test_a_kept_partition_is_not_part_of_a_closing_commit(caplog: pytest.LogCaptureFixture) -> None:
    """pre_commit may not return an open partition that is not being closed: ignored with a warning."""
    harness = SinkTaskHarness(Answering)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a"])
    harness.deliver(P1, ["x"])
    harness.task.answer = {P0: OffsetAndMetadata(1), P1: OffsetAndMetadata(1)}
    harness.revoke(P0)
    assert harness.committed == {P0: OffsetAndMetadata(1)}
    assert "for flights-1, which is not part of this commit" in caplog.text


def test_an_offset_beyond_what_was_delivered_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """pre_commit may not return an offset beyond what was delivered; the partition keeps its last commit."""
    harness = answering({P0: OffsetAndMetadata(4)})
    harness.commit()
    assert harness.committed == {}
    assert (
        "pre_commit returned 4 for flights-0, beyond the last delivered record (next offset 3)" in caplog.text
    )


def test_commits_never_go_back(caplog: pytest.LogCaptureFixture) -> None:
    """B12: committed offsets never go backwards: an offset below the commit is ignored with a warning."""
    harness = answering({P0: OffsetAndMetadata(9)}, committed={P0: 10})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10)}
    assert (
        "pre_commit returned 9 for flights-0, below what is committed: offsets never go back; "
        "ignored, the partition keeps its commit at 10" in caplog.text
    )


def test_a_token_that_was_not_prepared_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """pre_commit may not return a token that was not noted: ignored with a warning, nothing is published."""
    harness = answering({P0: OffsetAndMetadata(3, publish=["upload-9"])})
    harness.commit()
    assert harness.committed == {}
    assert "with tokens that were never noted by context.prepared: upload-9" in caplog.text
    assert harness.called("publish") == []


def test_none_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    """B9: None from pre_commit kills nothing: a warning, and the task goes on."""
    harness = answering(None)
    harness.commit()
    assert harness.committed == {}
    assert (
        "pre_commit returned None, not a mapping of offsets; nothing is committed for flights-0"
        in caplog.text
    )
    harness.task.answer = {P0: OffsetAndMetadata(3)}
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(3)}


@pytest.mark.parametrize(
    "flawed",
    [
        7,
        None,
        OffsetAndMetadata(None),
        OffsetAndMetadata("3"),
        OffsetAndMetadata(2.0),
        OffsetAndMetadata(3, metadata=None),
        OffsetAndMetadata(3, metadata=b"text"),
        OffsetAndMetadata(3, publish=None),
        OffsetAndMetadata(3, publish=7),
        OffsetAndMetadata(3, publish="upload-0"),
        OffsetAndMetadata(3, publish=[7]),
        OffsetAndMetadata(3, publish=[Token(7)]),
        OffsetAndMetadata(3, publish=[Token("upload-0", {"checksum": b"bytes are no JSON"})]),
    ],
    ids=repr,
)
def test_nonsense_for_one_partition_leaves_the_others_alone(
    flawed: object, caplog: pytest.LogCaptureFixture
) -> None:
    """pre_commit: a value that is no offset is ignored with a warning; the other partitions are committed."""

    class Noting(Answering):
        def open(self, partitions: object) -> None:
            self.context.prepared({P0: ["upload-0"]})

    harness = SinkTaskHarness(Noting)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, ["a", "b", "c"])
    harness.deliver(P1, ["x"])
    harness.task.answer = {P0: flawed, P1: OffsetAndMetadata(1)}
    harness.commit()
    assert harness.committed == {P1: OffsetAndMetadata(1)}
    assert "for flights-0," in caplog.text
    assert harness.task.context.assignment() == {P0, P1}


def test_numpy_integers_and_plain_tuples_are_understood() -> None:
    """pre_commit: an offset may be any integer, a partition any (topic, number), as Arrow and numpy give them."""
    harness = answering({("flights", 0): OffsetAndMetadata(np.int64(2))})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2)}
    (partition,) = harness.committed
    assert isinstance(partition, TopicPartition)
    assert type(harness.committed[P0].offset) is int


def test_an_empty_mapping_commits_nothing_and_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """pre_commit: an empty mapping means nothing to commit now; no warning, the partition stays open."""
    harness = answering({})
    harness.commit()
    assert harness.committed == {}
    assert caplog.records == []
    assert harness.task.context.assignment() == {P0}


def test_pre_commit_gets_a_copy() -> None:
    """pre_commit: what it is given is a copy; changing it commits nothing."""

    class Greedy(Sink):
        def pre_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> Offsets:
            offsets[P0] = OffsetAndMetadata(99)
            return {}

    harness = SinkTaskHarness(Greedy)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.commit()
    assert harness.outcome(P0).delivered == 1
    assert harness.committed == {}


def test_a_commit_of_part_of_what_was_accepted() -> None:
    """pre_commit: an offset between the commit and the last accepted record is committed as it is."""
    harness = answering({P0: OffsetAndMetadata(2, "half")})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(2, "half")}
    assert harness.outcome(P0).tail == 1


def test_metadata_alone_is_worth_a_commit() -> None:
    """pre_commit: the same offset with another metadata is committed, as in Connect; the same of both is not."""
    harness = answering({P0: OffsetAndMetadata(10, "new")}, committed={P0: OffsetAndMetadata(10, "old")})
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(10, "new")}
    before = harness.log.saved
    harness.commit()
    assert harness.log.saved is before


def test_committed_shows_what_is_committed() -> None:
    """context.committed: the last commit with its metadata, None before the first."""
    harness = answering({P0: OffsetAndMetadata(2, "m")})
    assert harness.task.context.committed(P0) is None
    harness.commit()
    assert harness.task.context.committed(P0) == OffsetAndMetadata(2, "m")


# -- which offsets are offered -----------------------------------------------------------------------


def test_offsets_advance_only_after_put_returned() -> None:
    """Offsets advance only after put returned: a batch that put refuses is in no commit."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    seen = []

    class Watching(Exception):
        pass

    def put(records: SinkRecords) -> None:
        seen.append(harness.outcome(P0).delivered)
        raise Watching

    harness.task.put = put
    harness.deliver(P0, ["b"])
    assert seen == [1]
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_offsets_advance_over_gaps() -> None:
    """Offsets advance to the last record's offset + 1, whatever gaps (compaction, markers) lie before it."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 3, 4, 90))
    harness.deliver(P0, rows(P0, 200))
    harness.commit()
    assert harness.called("pre_commit")[0].arguments == ({P0: OffsetAndMetadata(201)},)


def test_offsets_advance_over_records_that_were_filtered_out() -> None:
    """Offsets advance also over records that were filtered out, even if the whole batch was (KAFKA-5567)."""
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


def test_rows_below_the_commit_are_dropped() -> None:
    """Offsets: rows that an earlier attempt committed are dropped, also from the middle of a batch."""
    harness = SinkTaskHarness(Sink, committed={P0: 5})
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    harness.deliver(P0, rows(P0, 3, 4, 7, 8))
    assert harness.task.taken == {P0: [7, 8]}


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([2], "offset 2 after 2"),
        ([0], "offset 0 after 2"),
        ([5, 5], "offset 5 after 5"),
        ([7, 6], "offset 6 after 7"),
    ],
)
def test_offsets_that_do_not_ascend_end_the_partition(second: list[int], said: str) -> None:
    """Offsets must ascend: a source that repeats or reorders rows ends the partition, named with both offsets."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1)
    harness.deliver(P0, rows(P0, 0, 1, 2))
    batch = rows(P0, *sorted(set(second)))
    if len(second) > 1:  # SinkRecords.of would refuse these
        batch = SinkRecords(P0, batch.arrow.take([0, 0] if second[0] == second[1] else [1, 0]))
    harness.deliver(P0, batch)
    failure = harness.outcome(P0).failure
    assert said in failure.message
    assert "offsets must ascend" in failure.message
    assert harness.committed == {P0: OffsetAndMetadata(3)}
    assert harness.task.context.assignment() == {P1}


def test_rows_of_a_revoked_partition_are_not_put() -> None:
    """B6: rows of a revoked partition are never put: they are told by Kafka's coordinates, not the record's topic.

    There is no transform that could rename a topic before the engine looks: a batch belongs to one
    topic partition from the source to ``put``.
    """
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
    """Periodic commits: one each commit_interval, counted from its beginning; nothing new means no pre_commit."""
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


def test_a_failed_periodic_pre_commit_ends_its_partitions() -> None:
    """pre_commit raising in a periodic commit ends those partitions with the cause; the task lives, others go on."""
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


def test_a_failed_pre_commit_while_a_batch_is_pending() -> None:
    """B3: after a failed pre_commit nothing is rewound: the partition ends, its pending batch is dropped with it."""
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


def test_request_commit_is_heard_when_the_call_returns() -> None:
    """request_commit: a periodic commit follows as soon as the call returned, the flag False."""

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


def test_request_commit_inside_pre_commit_is_kept() -> None:
    """B12: requestCommit in pre_commit is not lost: another commit is due at once, and none after that."""

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


# -- context.offset, context.fail ----------------------------------------------------------------------


def test_asking_for_another_position_ends_the_partition() -> None:
    """context.offset: another position ends the partition with what is committed; a generation never goes back."""

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
    assert "asked for flights-0 at offset 0 while at 2" in harness.outcome(P0).failure.message
    assert harness.outcome(P0).tail == 1


def test_asking_for_the_next_record_changes_nothing() -> None:
    """context.offset: asking for the very next record, as a sink that keeps its own offsets does, is no move."""

    class OwnOffsets(Sink):
        def open(self, partitions: object) -> None:
            self.context.offset({P0: 7})

    harness = SinkTaskHarness(OwnOffsets, committed={P0: 7})
    harness.start()
    harness.assign(P0)
    assert harness.task.context.assignment() == {P0}
    assert harness.outcome(P0).failure is None


def test_asking_for_a_position_outside_an_open_partition(caplog: pytest.LogCaptureFixture) -> None:
    """B9: context.offset in start(), or for a partition that is not open, is ignored with a warning (KAFKA-10370)."""

    class Early(Sink):
        def start(self, config: object) -> None:
            self.context.offset({P0: 3})

    harness = SinkTaskHarness(Early)
    harness.start()
    assert "context.offset asked for flights-0 at 3, which is not open here; ignored" in caplog.text
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(1)}


def test_failing_one_partition_of_a_call() -> None:
    """context.fail: ends that partition with its cause; what the same pre_commit returned for others is committed."""

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


def test_failing_a_partition_that_is_not_open(caplog: pytest.LogCaptureFixture) -> None:
    """context.fail: for a partition that is not open, ignored with a warning."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.task.context.fail(P0, ConnectException("x"))
    assert "context.fail named flights-0, which is not open here; ignored" in caplog.text


def test_requests_end_with_the_partition() -> None:
    """context.fail and context.offset concern one opening: what was asked while it ended does not meet the next."""

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


# -- figures -----------------------------------------------------------------------------------------


def test_the_tail_is_counted_from_the_first_record_on() -> None:
    """B10: what will be read again is counted exactly from the first record on, before any commit too."""
    harness = SinkTaskHarness(BufferingSink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 5, 6))
    assert harness.outcome(P0).tail == 3
    harness.deliver(P0, rows(P0, 7, 100))
    outcome = harness.outcome(P0)
    assert (outcome.tail, outcome.records, outcome.delivered, outcome.committed) == (5, 5, 101, None)
    harness.commit()
    outcome = harness.outcome(P0)
    assert (outcome.tail, outcome.records, outcome.delivered, outcome.committed) == (2, 5, 101, 7)


def test_the_tail_is_counted_within_batches() -> None:
    """B10: a commit in the middle of a batch, gapless or not, leaves the exact count above it."""
    harness = SinkTaskHarness(Answering, committed={P0: 100})
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 100, 101, 102, 103))
    harness.deliver(P0, rows(P0, 110, 120, 130))
    for offset, tail in ((101, 6), (103, 4), (104, 3), (110, 3), (111, 2), (125, 1), (131, 0)):
        harness.task.answer = {P0: OffsetAndMetadata(offset)}
        harness.commit()
        assert (harness.committed[P0].offset, harness.outcome(P0).tail) == (offset, tail)


def test_counts_stand_in_the_outcome() -> None:
    """context.count: adds up per partition and stands in its outcome."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0, P1)
    harness.task.context.count(P0, files=1, bytes=100)
    harness.task.context.count(P0, files=1, bytes=20)
    assert harness.outcome(P0).counts == {"files": 2, "bytes": 120}
    assert harness.outcome(P1).counts == {}


# -- the store -----------------------------------------------------------------------------------------


def test_a_fence_that_the_task_swallows_is_raised_all_the_same() -> None:
    """A failed write speaks louder than the author's code: a swallowed FencedException still ends the task."""

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
    assert harness.outcome(P0).delivered == 0
    assert harness.names()[-1] == "close"


@pytest.mark.parametrize("swallowed", [ConnectException, KeyError])
def test_a_fence_that_the_task_turns_into_another_error_is_raised_all_the_same(swallowed: type) -> None:
    """A failed write speaks louder than the author's code: whatever it raises instead, the fence is what counts."""

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
    """Each partition is opened once at a time: opening it again would lose its state, so it is an error."""
    harness = SinkTaskHarness(Sink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["a"])
    with pytest.raises(RuntimeError, match="flights-0 is open already"):
        harness.assign(P0)
    harness.stop()
    assert harness.committed == {P0: OffsetAndMetadata(1)}
