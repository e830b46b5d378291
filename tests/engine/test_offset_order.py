"""A source that breaks the order of its offsets: offsets in doubt are not committed but reported."""

from __future__ import annotations

import pytest

from sinksdk import OffsetAndMetadata, OffsetRange, SinkRecords, TopicPartition
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, BufferingSink, Sink, opened, rows


def in_this_order(partition: TopicPartition, *offsets: int) -> SinkRecords:
    ascending = sorted(set(offsets))
    batch = rows(partition, *ascending)
    return SinkRecords(partition, batch.arrow.take([ascending.index(offset) for offset in offsets]))


def broken(*batches: SinkRecords, committed: int = 0, limits: OffsetRange | None = None) -> SinkTaskHarness:
    """Return a sink of two partitions, for which the source delivers these batches of the first one."""
    harness = SinkTaskHarness(Sink, committed={P0: committed} if committed else None)
    harness.start()
    harness.assign(P0, P1, limits=limits)
    for batch in batches:
        harness.deliver(P0, batch)
    return harness


@pytest.mark.parametrize(
    ("second", "said"),
    [
        ([2], "offset 2 after 2"),
        ([0], "offset 0 after 2"),
        ([5, 5], "offset 5 after 5"),
        ([7, 6], "offset 6 after 7"),
    ],
)
def test_offsets_that_do_not_ascend_fail_the_partition(second: list[int], said: str) -> None:
    harness = broken(rows(P0, 0, 1, 2), in_this_order(P0, *second))
    failure = harness.outcome(P0).failure
    assert said in failure.message
    assert harness.task.taken == {P0: [0, 1, 2]}
    assert harness.task.context.assignment() == {P1}
    assert harness.names()[-1] == "close"


def test_records_before_a_late_offset_are_not_committed() -> None:
    # Offset 5 comes after 4,997. A commit of 4,998 would skip offset 5 for good, so nothing is committed.
    harness = broken(rows(P0, *range(5), *range(6, 4_998)), rows(P0, 5))
    harness.finish(P0)
    harness.stop()
    assert harness.committed == {}
    assert not harness.called("pre_commit")
    assert harness.outcome(P0).tail == 4_997


def test_a_late_offset_is_not_retriable() -> None:
    # The source would break its order again, so the failure is final, whatever restart.max.attempts says.
    assert broken(rows(P0, 1), rows(P0, 0)).outcome(P0).failure.is_final
    harness = broken()
    harness.task.faults["put"].append(ValueError("no"))
    harness.deliver(P0, ["a"])
    assert not harness.outcome(P0).failure.is_final


def test_all_late_offsets_of_a_batch_are_named() -> None:
    # The error lists late offsets, so that the operator can search the source for them.
    failure = broken(rows(P0, 10), in_this_order(P0, 11, 3, 12, 4, 12, 13)).outcome(P0).failure
    assert "late or repeated: 3, 4, 12" in failure.message


def test_many_late_offsets_are_counted() -> None:
    failure = broken(rows(P0, 5_000), rows(P0, *range(1_000))).outcome(P0).failure
    assert "0, 1, 2" in failure.message
    assert "1,000 in all" in failure.message
    assert len(failure.message) < 1_000


def test_offsets_skipped_by_an_earlier_commit_are_named() -> None:
    harness = broken(rows(P0, 0, 1, 3))
    harness.commit()
    harness.deliver(P0, rows(P0, 6))
    harness.deliver(P0, in_this_order(P0, 2, 5))
    failure = harness.outcome(P0).failure
    assert harness.committed == {P0: OffsetAndMetadata(4)}
    assert "late or repeated: 2, 5" in failure.message
    assert "the commit was already at 4, which skips 2" in failure.message
    assert "alter the partition's offset to 2" in failure.message


def test_a_late_offset_above_the_commit_needs_no_altered_offset() -> None:
    failure = broken(rows(P0, 1), rows(P0, 0)).outcome(P0).failure
    assert "alter" not in failure.message
    assert "no record is skipped" in failure.message


def test_order_is_checked_before_committed_records_are_skipped() -> None:
    # Regression: a search that needs sorted offsets cut off the committed rows, and others with them.
    harness = broken(in_this_order(P0, 48, 60, 7, 49, 61), committed=50, limits=OffsetRange(0, 100))
    assert "offset 7 after 60" in harness.outcome(P0).failure.message
    assert harness.task.taken == {}


def test_order_is_checked_across_records_of_an_earlier_attempt() -> None:
    harness = broken(rows(P0, 0, 1, 3), rows(P0, 4, 5), rows(P0, 2), committed=5, limits=OffsetRange(0, 10))
    assert "offset 2 after 5" in harness.outcome(P0).failure.message


def test_records_below_the_range_fail_the_partition() -> None:
    harness = broken(rows(P0, 3), committed=5, limits=OffsetRange(5, 10))
    assert "offset 3, before the range that begins at 5" in harness.outcome(P0).failure.message
    assert harness.outcome(P0).failure.is_final


def test_tokens_of_records_in_doubt_are_discarded() -> None:
    harness, world = opened()
    harness.deliver(P0, rows(P0, 0, 1))
    harness.deliver(P0, rows(P0, 0))
    assert world.undone == ["upload-0"]
    assert harness.committed == {}
    assert harness.log.prepared(P0) == ()


def test_tokens_that_cannot_be_discarded_are_kept_for_the_successor() -> None:
    harness, world = opened()
    harness.deliver(P0, rows(P0, 0, 1))
    harness.task.faults["discard"].append(ValueError("away"))
    harness.deliver(P0, rows(P0, 0))
    assert harness.log.noted == {P0: ["upload-0"]}
    harness.crash()
    harness.start()
    harness.assign(P0)
    assert world.undone == ["upload-0"]
    assert harness.log.stale(P0) == ()


def test_a_buffering_sink_writes_no_records_in_doubt() -> None:
    # pre_commit is not called any more: what a sink writes in pre_commit would be written twice.
    harness = SinkTaskHarness(BufferingSink)
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 1))
    harness.deliver(P0, rows(P0, 0))
    assert harness.task.files == []
