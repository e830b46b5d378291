"""Sinks that keep their own offsets: the effect of ``context.offset`` in ``open``."""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from sinksdk import FencedException, OffsetAndMetadata, OffsetRange, SinkRecords, TopicPartition
from sinksdk.engine.options import EngineOptions
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Offsets, Sink, TwoPhaseSink, rows


class Watermark(Sink):
    """Requests the position in its database, if the database has a position of the partition."""

    marks: dict[TopicPartition, object]

    def __init__(self, marks: dict[TopicPartition, object]) -> None:
        super().__init__()
        self.marks = marks

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.context.offset({p: self.marks[p] for p in partitions if p in self.marks})


class Noting(Watermark):
    """Stores the position in its database as metadata of its commits."""

    def pre_commit(self, offsets: Offsets) -> Offsets:
        return {p: replace(offset, metadata=str(self.marks[p])) for p, offset in offsets.items()}


def requesting(
    mark: object,
    *,
    committed: int | None = None,
    limits: OffsetRange | None = None,
    held: OffsetRange | None = None,
    options: EngineOptions | None = None,
) -> SinkTaskHarness:
    """Return a sink whose database has this position of its first partition."""
    marks = {P0: mark}
    harness = SinkTaskHarness(
        lambda: Watermark(marks),
        committed=None if committed is None else {P0: committed},
        options=options,
    )
    harness.start()
    harness.assign(P0, P1, limits=limits, held=held)
    return harness


# -- forward -----------------------------------------------------------------------------------------


def test_a_requested_later_offset_skips_records(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    harness = requesting(7, committed=5, limits=OffsetRange(5, 20))
    harness.deliver(P0, rows(P0, 5, 6, 7, 8))
    harness.commit()
    assert harness.task.taken == {P0: [7, 8]}
    assert harness.committed == {P0: OffsetAndMetadata(9)}
    (said,) = [record for record in caplog.records if "flights-0" in record.getMessage()]
    assert (
        "has flights-0 up to offset 7 (exclusive): offsets 5 to 6 are skipped and committed"
        in said.getMessage()
    )
    assert said.levelno == logging.INFO  # the usual start of a sink that keeps its own offsets


def test_a_skipped_to_offset_is_committed_without_further_records() -> None:
    # Regression: such a partition was planned again and again, and skipped each time.
    for end in (7, 9):
        harness = requesting(7, committed=5, limits=OffsetRange(5, end))
        harness.deliver(P0, rows(P0, 5, 6))
        harness.finish(P0)
        assert harness.committed == {P0: OffsetAndMetadata(end)}


def test_a_skipped_to_offset_is_committed_when_the_partition_closes_early() -> None:
    harness = requesting(7, committed=5)
    harness.revoke()
    assert harness.committed == {P0: OffsetAndMetadata(7)}


def test_an_offset_beyond_the_range_is_reached_by_later_generations() -> None:
    harness = requesting(1_000, limits=OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, *range(10)))
    harness.finish(P0)
    assert harness.task.taken == {}
    assert harness.committed == {P0: OffsetAndMetadata(10)}


def test_a_skip_is_committed_while_the_sink_holds_records_back() -> None:
    class Buffering(Watermark):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            return {}

    harness = SinkTaskHarness(Buffering({P0: 7}), committed={P0: 5})
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 7, 8))
    harness.commit()
    assert harness.committed == {P0: OffsetAndMetadata(7)}


@pytest.mark.parametrize("end", [7, 9])
def test_a_skip_is_committed_with_the_metadata_of_the_sink(end: int) -> None:
    # Regression: pre_commit was not called, so a sink that keeps its watermark in the metadata could not
    # detect a later loss.
    harness = SinkTaskHarness(lambda: Noting({P0: 7}), committed={P0: 5})
    harness.start()
    harness.assign(P0, limits=OffsetRange(5, end))
    harness.deliver(P0, rows(P0, 5, 6))
    harness.finish(P0)
    assert harness.committed == {P0: OffsetAndMetadata(end, "7")}


# -- backward ----------------------------------------------------------------------------------------


def test_the_next_generation_starts_at_a_requested_earlier_offset(caplog: pytest.LogCaptureFixture) -> None:
    harness = requesting(3, committed=5, limits=OffsetRange(5, 20))
    harness.deliver(P0, rows(P0, 5))
    harness.deliver(P1, rows(P1, 5))
    outcome = harness.outcome(P0)
    assert (outcome.failure, outcome.moved_to, outcome.committed) == (None, 3, 3)
    assert harness.task.taken == {P1: [5]}
    assert harness.task.context.assignment() == {P1}
    (entry,) = harness.log.saved.entries
    assert entry.withdrawn_from == 5
    assert "so the commit is withdrawn from 5" in caplog.text
    harness.crash()
    harness.start()
    harness.assign(P0, limits=OffsetRange(3, 20))
    harness.deliver(P0, rows(P0, 3, 4, 5))
    assert harness.task.taken == {P0: [3, 4, 5]}


def test_a_commit_is_rewound_with_the_metadata_of_the_sink() -> None:
    # Regression: a second loss, before the next commit, looked like a new table.
    harness = SinkTaskHarness(lambda: Noting({P0: 3}), committed={P0: OffsetAndMetadata(5, "5")})
    harness.start()
    harness.assign(P0)
    assert harness.committed == {P0: OffsetAndMetadata(3, "3")}


@pytest.mark.parametrize("answer", [{}, None, {P0: OffsetAndMetadata(2, "x")}])
def test_a_commit_is_rewound_without_metadata_if_the_sink_returns_none(answer: Any) -> None:
    class Silent(Watermark):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            found: Offsets = answer
            return found

    harness = SinkTaskHarness(lambda: Silent({P0: 3}), committed={P0: OffsetAndMetadata(5, "5")})
    harness.start()
    harness.assign(P0)
    assert harness.committed == {P0: OffsetAndMetadata(3)}


def test_a_failed_pre_commit_rewinds_no_commit() -> None:
    class Failing(Watermark):
        def pre_commit(self, offsets: Offsets) -> Offsets:
            raise ValueError("no answer")

    harness = SinkTaskHarness(lambda: Failing({P0: 3}), committed={P0: 5})
    harness.start()
    harness.assign(P0)
    assert harness.outcome(P0).failure.message == "ValueError: no answer"
    assert harness.committed == {P0: OffsetAndMetadata(5)}


def test_a_fenced_task_rewinds_no_commit() -> None:
    # A zombie that requests the position in its database does not move its successor's commit.
    marks: dict[TopicPartition, object] = {P0: 3}
    harness = SinkTaskHarness(lambda: Watermark(marks), committed={P0: 5})
    harness.start()
    log = harness.log
    harness.fence()
    with pytest.raises(FencedException):
        harness.assign(P0)
    assert log.offsets == {P0: OffsetAndMetadata(5)}


@pytest.mark.parametrize(("committed", "begin"), [(None, 10), (5, 10)])
def test_a_requested_offset_below_the_log_is_read_from_its_start(
    committed: int | None, begin: int, caplog: pytest.LogCaptureFixture
) -> None:
    harness = requesting(5 if committed else 0, committed=committed, limits=OffsetRange(begin, 20))
    harness.deliver(P0, rows(P0, 10, 11))
    harness.commit()
    assert harness.outcome(P0).failure is None
    assert harness.committed == {P0: OffsetAndMetadata(12)}
    assert f"below the available offsets; it is read from {begin}" in caplog.text


def test_tokens_prepared_in_open_are_discarded_after_a_rewind() -> None:
    class Preparing(TwoPhaseSink):
        def open(self, partitions: Collection[TopicPartition]) -> None:
            self.context.prepared({P0: ["begun"]})
            self.context.offset({P0: 3})

    harness = SinkTaskHarness(Preparing(), committed={P0: 5})
    harness.start()
    harness.assign(P0)
    assert harness.task.world.undone == ["begun"]
    assert harness.names()[-1] == "close"


# -- beyond what the source holds ----------------------------------------------------------------------


def test_an_offset_beyond_the_end_of_the_log_is_refused() -> None:
    # The topic was created again: skipping to the offset would skip all of its records without an error.
    harness = requesting(1_000, committed=5, limits=OffsetRange(5, 8), held=OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, 5, 6))
    harness.deliver(P1, rows(P1, 5, 6))
    harness.commit()
    message = harness.outcome(P0).failure.message
    assert "requested flights-0 at offset 1000, but the end offset of the source is 10" in message
    assert harness.committed == {P0: OffsetAndMetadata(5), P1: OffsetAndMetadata(7)}
    assert harness.task.taken == {P1: [5, 6]}


def test_the_end_offset_of_the_log_may_be_requested() -> None:
    harness = requesting(10, committed=5, limits=OffsetRange(5, 8), held=OffsetRange(0, 10))
    harness.deliver(P0, rows(P0, 5, 6, 7))
    harness.finish(P0)
    assert (harness.committed, harness.task.taken) == ({P0: OffsetAndMetadata(8)}, {})


def test_an_offset_below_the_log_is_refused_and_the_commit_is_unchanged() -> None:
    harness = requesting(3, committed=9, limits=OffsetRange(9, 20), held=OffsetRange(5, 20))
    message = harness.outcome(P0).failure.message
    assert "requested flights-0 at offset 3, but the first offset of the source is 5" in message
    assert "on.data.loss=skip" in message
    assert harness.committed == {P0: OffsetAndMetadata(9)}


def test_an_offset_below_the_log_is_accepted_with_on_data_loss_skip() -> None:
    # The commit moves to the offset, so that the planner counts and logs what is lost.
    harness = requesting(
        3,
        committed=9,
        limits=OffsetRange(9, 20),
        held=OffsetRange(5, 20),
        options=EngineOptions(skip_lost=True),
    )
    outcome = harness.outcome(P0)
    assert (outcome.failure, outcome.moved_to, outcome.committed) == (None, 3, 3)


# -- neither -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [-1, 1.5, "7"])
def test_an_invalid_offset_fails_the_partition(mark: object) -> None:
    harness = requesting(mark, committed=5)
    assert f"at {mark!r}, which is not an offset" in harness.outcome(P0).failure.message
    assert harness.committed == {P0: OffsetAndMetadata(5)}
    assert harness.task.context.assignment() == {P1}


def test_a_partition_failed_in_open_is_not_rewound() -> None:
    class Failing(Watermark):
        def open(self, partitions: Collection[TopicPartition]) -> None:
            super().open(partitions)
            self.context.fail(P0, ValueError("no table"))

    harness = SinkTaskHarness(Failing({P0: 3}), committed={P0: 5})
    harness.start()
    harness.assign(P0)
    assert harness.outcome(P0).failure.message == "ValueError: no table"
    assert harness.committed == {P0: OffsetAndMetadata(5)}


# -- nothing between the mark and the commit -----------------------------------------------------------


class Table(Watermark):
    """Moves its watermark with each record that it accepts."""

    def put(self, records: SinkRecords) -> None:
        super().put(records)
        self.marks[records.partition] = records.next_offset


def after_a_range(*offsets: int, end: int, **options: Any) -> SinkTaskHarness:
    """Return a table that has accepted a range, and a successor that has not started yet."""
    marks: dict[TopicPartition, object] = {}
    harness = SinkTaskHarness(lambda: Table(marks), **options)
    harness.start()
    harness.assign(P0, limits=OffsetRange(0, end))
    harness.deliver(P0, rows(P0, *offsets))
    harness.finish(P0)
    assert harness.committed[P0].offset == end
    return harness.successor()


def test_trailing_gaps_do_not_cause_a_rewind() -> None:
    again = after_a_range(0, 1, 2, end=5)
    again.start()
    again.assign(P0, limits=OffsetRange(5, 8))
    assert again.task.marks == {P0: 3}
    assert again.outcome(P0).moved_to is None
    again.deliver(P0, rows(P0, 5, 6))
    again.finish(P0)
    assert again.committed[P0].offset == 8
    assert again.outcome(P0).failure is None


def test_a_requested_offset_below_the_last_record_rewinds_the_commit() -> None:
    again = after_a_range(0, 1, 2, end=5)
    again.start()
    again.task.marks[P0] = 2
    again.assign(P0, limits=OffsetRange(5, 8))
    assert again.outcome(P0).moved_to == 2
    assert again.committed[P0].offset == 2


def test_bad_records_at_the_end_do_not_cause_a_rewind() -> None:
    class Refusing(Table):
        def put(self, records: SinkRecords) -> None:
            good = [record for record in records if record.offset < 2]
            for record in records:
                if record not in good:
                    self.context.errant_record_reporter().report(record, ValueError("bad"))
            self.marks[records.partition] = good[-1].offset + 1

    marks: dict[TopicPartition, object] = {}
    harness = SinkTaskHarness(lambda: Refusing(marks), options=EngineOptions(tolerate_errors=True))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, rows(P0, 0, 1, 2, 3))
    harness.revoke(P0)
    assert harness.committed[P0].offset == 4
    again = harness.successor()
    again.start()
    again.assign(P0)
    assert (marks[P0], again.outcome(P0).moved_to) == (2, None)


def test_a_commit_of_an_older_version_is_rewound() -> None:
    harness = requesting(3, committed=5)
    assert harness.outcome(P0).moved_to == 3
