"""The limit of bad records ends a partition before an outage fills the dead letters with its topic."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pytest

from sinksdk import ConnectException, DataException, OffsetAndMetadata, SinkRecord, SinkRecords
from sinksdk.engine import EngineOptions
from sinksdk.engine.errant import ErrorCounter, ErrorLimit, TooManyErrorsException
from sinksdk.testing import SinkTaskHarness
from tests.engine.sinks import P0, P1, Letters, Sink

NO_SHARE = 1.0


def first_excess(
    ceiling: ErrorLimit, verdicts: Sequence[bool], sizes: Iterable[int] = (), step: int = 1
) -> tuple[int, str] | None:
    """Return the place of the first failed record beyond the limit (True: failed), and its message."""
    tally = ErrorCounter(P0, ceiling)
    place = 0
    for size in (*sizes, len(verdicts)):
        batch = verdicts[place : place + size]
        tally.begin(np.arange(place, place + len(batch), dtype=np.int64) * step)
        for bad in batch:
            error = tally.failed(place * step, "bad") if bad else None
            if error is not None:
                return place, str(error)
            place += 1
    return None


SPLITS = [(), (1,) * 30, (3, 4, 1, 9)]


@pytest.mark.parametrize("sizes", SPLITS)
@pytest.mark.parametrize("step", [1, 5])
def test_max_consecutive_limits_failures_in_a_row(sizes: Sequence[int], step: int) -> None:
    ceiling = ErrorLimit(max_consecutive=5, max_share=NO_SHARE)
    assert first_excess(ceiling, [*[True] * 5, False] * 4, sizes, step) is None
    place, message = first_excess(ceiling, [False, *[True] * 9], sizes, step) or (None, "")
    assert place == 6
    assert "6 in a row, and errors.deadletterqueue.max.consecutive allows 5" in message


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [0, 2, 1], [1, 0, 2]])
def test_consecutive_failures_may_be_reported_in_any_order(order: list[int]) -> None:
    tally = ErrorCounter(P0, ErrorLimit(max_consecutive=2, max_share=NO_SHARE))
    tally.begin(np.array([10, 20, 30]))
    errors = [tally.failed((10, 20, 30)[row], "bad") for row in order]
    assert [error is None for error in errors] == [True, True, False]


def test_a_record_reported_twice_counts_once() -> None:
    tally = ErrorCounter(P0, ErrorLimit(max_consecutive=2, max_share=NO_SHARE))
    tally.begin(np.array([1, 2, 3]))
    assert [tally.failed(offset, "bad") for offset in (1, 2, 1, 2, 2)] == [None] * 5
    assert tally.failed(3, "bad") is not None


def test_a_record_of_an_earlier_batch_counts_in_the_share() -> None:
    tally = ErrorCounter(P0, ErrorLimit(max_consecutive=None, max_share=0.5))
    tally.begin(np.arange(200))
    tally.begin(np.arange(200, 201))
    errors = [tally.failed(offset, "bad") for offset in range(101)]
    assert [error is None for error in errors] == [True] * 100 + [False]


@pytest.mark.parametrize("sizes", SPLITS)
def test_max_share_limits_the_share_of_failed_records(sizes: Sequence[int]) -> None:
    ceiling = ErrorLimit(max_consecutive=None, max_share=0.5)
    assert first_excess(ceiling, [False, True] * 200, sizes) is None
    assert first_excess(ceiling, [True] * 99, sizes) is None
    place, message = first_excess(ceiling, [False, *[True] * 200], sizes) or (None, "")
    assert place == 99
    assert "99 of 100 records of flights-0 failed in this generation" in message
    assert "a larger share than the 0.5 that errors.deadletterqueue.max.share allows" in message


def test_limits_of_minus_one_and_one_allow_any_failures() -> None:
    assert first_excess(ErrorLimit(None, NO_SHARE), [True] * 20_000, (10_000,)) is None


def test_max_share_of_zero_allows_no_failure() -> None:
    ceiling = ErrorLimit(None, 0.0)
    assert first_excess(ceiling, [*[False] * 99, True]) is not None
    assert first_excess(ceiling, [*[False] * 50, True, *[False] * 100]) is None


def test_the_error_names_first_and_last_failure_and_the_remedy() -> None:
    tally = ErrorCounter(P0, ErrorLimit(max_consecutive=2, max_share=NO_SHARE))
    tally.begin(np.array([4, 8, 16]))
    tally.failed(4, "VALUE_CONVERTER: no JSON")
    tally.failed(8, "TASK_PUT: too long")
    assert str(tally.failed(16, "TASK_PUT: refused")) == (
        "3 of 3 records of flights-0 failed in this generation: 3 in a row, and "
        "errors.deadletterqueue.max.consecutive allows 2. The first was at offset 4: VALUE_CONVERTER: no JSON; "
        "the last at offset 16: TASK_PUT: refused. Nothing after the partition's last commit is committed, so "
        "these records are read again: fix the cause, or raise the limit if the records are bad"
    )


# -- in the engine -----------------------------------------------------------------------------------


def unreadable(topic: str, data: bytes | None) -> bytes | None:
    if data == b"x":
        raise DataException("unreadable")
    return data


class Refusing(Sink):
    """Reports values that begin with ``r``; if ``swallow`` is set, suppresses the reporter's exception."""

    swallow = False

    def put(self, records: SinkRecords) -> None:
        for record in records:
            if (record.value or b"").startswith(b"r"):
                self.refuse(record)
        super().put(records)

    def refuse(self, record: SinkRecord) -> None:
        try:
            self.context.errant_record_reporter().report(record, ValueError("refused"))
        except ConnectException:
            if not self.swallow:
                raise


class Swallowing(Refusing):
    swallow = True


def started(
    sink: type[Sink] = Refusing, letters: Letters | None = None, *, log: bool = False
) -> SinkTaskHarness:
    options = EngineOptions(
        tolerate_errors=True,
        log_errors=log,
        value_converter=unreadable,
        error_limit=ErrorLimit(max_consecutive=3, max_share=NO_SHARE),
    )
    harness = SinkTaskHarness(sink, options=options, dead_letters=letters)
    harness.start()
    harness.assign(P0, P1)
    return harness


@pytest.mark.parametrize("sink", [Refusing, Swallowing])
@pytest.mark.parametrize("bad", ["xxxx", "rrrr", "xrxr", "rrxx"])
def test_a_partition_fails_above_the_error_limit(sink: type[Sink], bad: str) -> None:
    # The partition fails, and commits nothing since its last commit; the other partition continues.
    letters = Letters()
    harness = started(sink, letters)
    harness.deliver(P0, ["good"])
    harness.commit()
    harness.deliver(P0, ["good", "x"])
    harness.deliver(P0, ["good", *bad])
    failure = harness.outcome(P0).failure
    assert failure is not None
    assert failure.kind == "TooManyErrorsException"
    assert "4 in a row" in failure.message
    assert harness.committed == {P0: OffsetAndMetadata(1)}, "what was skipped before is read again"
    assert len(letters.records) == 1 + 3, "the one too many is not sent"
    harness.deliver(P1, ["good"])
    harness.commit()
    assert harness.committed[P1] == OffsetAndMetadata(1)


def test_the_error_limit_applies_without_dead_letters() -> None:
    harness = started()
    harness.deliver(P0, ["x"] * 4)
    assert "errors.deadletterqueue.max.consecutive allows 3" in harness.outcome(P0).failure.message
    assert harness.committed == {}


def test_the_error_limit_counts_across_batches() -> None:
    harness = started()
    for values in (["x", "x"], ["good", "x"], ["x", "x"]):
        harness.deliver(P0, values)
    assert harness.outcome(P0).failure is None
    harness.deliver(P0, ["x", "good"])
    assert harness.outcome(P0).failure is not None


def test_each_partition_has_its_own_error_count() -> None:
    harness = started()
    for _ in range(3):
        harness.deliver(P0, ["x"])
        harness.deliver(P1, ["x"])
    assert (harness.outcome(P0).failure, harness.outcome(P1).failure) == (None, None)


def test_the_error_count_restarts_when_a_partition_is_reopened() -> None:
    harness = started()
    harness.deliver(P0, ["x"] * 3)
    harness.revoke(P0)
    harness.assign(P0)
    harness.deliver(P0, ["x"] * 3)
    assert harness.outcome(P0).failure is None


def test_a_wrapped_too_many_errors_exception_fails_the_partition_without_a_commit() -> None:
    class Wrapping(Refusing):
        def put(self, records: SinkRecords) -> None:
            try:
                super().put(records)
            except TooManyErrorsException as error:
                message = "put failed"
                raise RuntimeError(message) from error

    harness = started(Wrapping, Letters())
    harness.deliver(P0, ["good"])
    harness.deliver(P0, ["r"] * 4)
    assert harness.outcome(P0).failure.kind == "TooManyErrorsException"
    assert harness.committed == {}


def test_without_tolerance_the_first_error_fails_the_partition() -> None:
    harness = SinkTaskHarness(Sink, options=EngineOptions(value_converter=unreadable))
    harness.start()
    harness.assign(P0)
    harness.deliver(P0, ["x"] * 2_000)
    assert "errors.tolerance is none" in harness.outcome(P0).failure.message
