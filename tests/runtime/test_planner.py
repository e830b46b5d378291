from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from sinksdk import BatchPolicy, OffsetOutOfRangeException, OffsetRange, TopicPartition
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import PlannerState, RangePlan, Seen, Tail
from sinksdk.runtime.planner import Backlog, Planner, observe, remember

TP = TopicPartition("t", 0)
HUNDRED = Planner(BatchPolicy(max_records=100, max_wait=None))


def backlog(end: int, committed: int | None = None, **fields: Any) -> Backlog:
    return Backlog(TP, OffsetRange(0, end), committed, **fields)


def status(**fields: Any) -> PlannerState:
    return PlannerState(topic="t", partition=0, **fields)


def chosen(
    planner: Planner, *backlogs: Backlog, now: float = 0.0, flush: bool = False
) -> list[tuple[int, int, bool]]:
    decision = planner.decide(backlogs, now, flush=flush)
    return [(planned.start, planned.end, planned.due) for planned in decision.ranges]


def batches(planner: Planner, *backlogs: Backlog, now: float = 0.0) -> list[tuple[int, int | None]]:
    return [(planned.start, planned.records) for planned in planner.decide(backlogs, now).ranges]


def outcome(committed: int | None, delivered: int, tail: int = 0, **fields: Any) -> PartitionOutcome:
    return PartitionOutcome(TP, committed, delivered, 0, tail, fields.pop("read_to", delivered), **fields)


def test_without_a_batch_size_all_records_are_read_at_once_and_due() -> None:
    backlogs = [replace(backlog(7, 3), state=status(seen=(Seen(end=7, at=5.0),)))]

    assert chosen(Planner(), *backlogs, now=5.0) == [(3, 7, True)]


def test_without_new_records_no_generation_is_planned() -> None:
    assert chosen(Planner(), backlog(7, 7), now=1e9) == []


def test_only_full_batches_are_read_and_other_records_wait() -> None:
    assert batches(HUNDRED, backlog(170)) == [(0, 100)]
    assert batches(HUNDRED, backlog(170, 100)) == []


def test_several_full_batches_are_one_range() -> None:
    assert batches(HUNDRED, backlog(350)) == [(0, 300)]


def test_a_flush_makes_all_records_due() -> None:
    assert chosen(HUNDRED, backlog(170, 100), flush=True) == [(100, 170, True)]


def test_a_partial_batch_is_due_by_its_oldest_record() -> None:
    planner = Planner(BatchPolicy(max_records=100, max_wait=60.0))
    seen = status(seen=(Seen(end=120, at=1_000.0), Seen(end=130, at=1_050.0)))
    waiting = replace(backlog(130, 100), state=seen)

    decision = planner.decide([waiting], 1_059.0)
    assert (decision.ranges, decision.due_at) == ((), 1_060.0)
    assert chosen(planner, waiting, now=1_060.0) == [(100, 130, True)]


def test_records_seen_before_the_commit_do_not_make_later_ones_due() -> None:
    planner = Planner(BatchPolicy(max_records=100, max_wait=60.0))
    seen = status(seen=(Seen(end=100, at=0.0), Seen(end=130, at=1_050.0)))

    assert planner.decide([replace(backlog(130, 100), state=seen)], 1_060.0).due_at == 1_110.0


def test_first_seen_times_are_kept_when_the_log_grows() -> None:
    first = observe(backlog(10), 1.0)
    second = observe(replace(backlog(20), state=first), 2.0)
    same = observe(replace(backlog(20), state=second), 3.0)

    assert second.seen == (Seen(end=10, at=1.0), Seen(end=20, at=2.0))
    assert same == second


def test_sightings_are_limited_and_never_make_records_due_late() -> None:
    remembered = None
    for moment in range(1_000):
        remembered = observe(replace(backlog(moment + 1), state=remembered), float(moment))

    assert remembered is not None
    assert len(remembered.seen) <= 64
    assert remembered.seen[0].at == 0.0


def test_records_held_back_by_the_sink_are_not_read_again_without_new_ones() -> None:
    kept_back = status(tail=Tail(committed=0, end=150, records=70))

    assert chosen(HUNDRED, replace(backlog(179), state=kept_back)) == []
    assert chosen(HUNDRED, replace(backlog(180), state=kept_back)) == [(0, 180, False)]


def test_a_range_that_ended_in_gaps_is_not_planned_again() -> None:
    planned = RangePlan(topic="t", partition=0, start=0, end=150)
    after = remember(None, planned, outcome(0, 70, tail=70, read_to=150))

    assert after.tail == Tail(committed=0, end=150, records=70)
    assert chosen(HUNDRED, replace(backlog(150), state=after)) == []


def test_counted_records_apply_only_to_the_commit_they_follow() -> None:
    stale = status(tail=Tail(committed=0, end=150, records=70))

    assert batches(HUNDRED, replace(backlog(199, 100), state=stale)) == []
    assert batches(HUNDRED, replace(backlog(200, 100), state=stale)) == [(100, 100)]


def test_a_sink_that_holds_back_full_batches_does_not_cause_a_busy_loop() -> None:
    kept_back = status(tail=Tail(committed=0, end=500, records=500))

    assert chosen(HUNDRED, replace(backlog(500), state=kept_back)) == []


def test_records_held_back_at_a_periodic_end_are_read_again_when_due() -> None:
    planned = RangePlan(topic="t", partition=0, start=0, end=50)
    after = remember(None, planned, outcome(0, 50, tail=50))

    assert chosen(HUNDRED, replace(backlog(50), state=after), flush=True) == [(0, 50, True)]


def test_unpublished_commits_are_opened_without_new_records() -> None:
    assert chosen(HUNDRED, backlog(100, 100, unsettled=True)) == [(100, 100, False)]


def test_a_huge_backlog_is_cut_at_full_batches_without_being_due() -> None:
    planner = Planner(BatchPolicy(max_records=100, max_wait=None), max_records=1_050)
    decision = planner.decide([backlog(5_030)], 0.0, flush=True)

    [cut] = planner.share(decision.ranges, decision)
    assert (cut.start, cut.records, cut.due) == (0, 1_000, False)


def test_a_cut_range_always_includes_new_records() -> None:
    # Regression: a range was cut within records that an earlier generation had kept back, and was read again
    # without end.
    planner = Planner(BatchPolicy(max_records=6, max_wait=None), max_records=18)
    kept_back = status(tail=Tail(committed=12, end=30, records=5))
    decision = planner.decide([replace(backlog(31, 12), state=kept_back)], 0.0, flush=True)

    [cut] = planner.share(decision.ranges, decision)
    assert cut.end == 31


def test_partitions_of_one_task_share_its_record_limit() -> None:
    planner = Planner(BatchPolicy(max_records=100, max_wait=None), max_records=1_000)
    other = Backlog(TopicPartition("t", 1), OffsetRange(0, 9_000), None)
    decision = planner.decide([backlog(9_000), other], 0.0)

    assert [cut.records for cut in planner.share(decision.ranges, decision)] == [500, 500]


def test_a_batch_larger_than_the_record_limit_is_read_completely() -> None:
    # A batch that no task reads to its end would never be written.
    planner = Planner(BatchPolicy(max_records=100, max_wait=None), max_records=10)
    decision = planner.decide([backlog(250)], 0.0)

    assert [cut.records for cut in planner.share(decision.ranges, decision)] == [100]


def test_a_commit_beyond_the_source_is_an_error() -> None:
    with pytest.raises(
        OffsetOutOfRangeException, match=r"t-0 is committed up to offset 50.*end offset of the source is 20"
    ):
        HUNDRED.decide([backlog(20, 50)], 0.0)


def test_records_lost_before_they_were_read_are_an_error_unless_skipped() -> None:
    lost = Backlog(TP, OffsetRange(80, 300), 50)

    with pytest.raises(OffsetOutOfRangeException, match=r"on\.data\.loss=skip"):
        HUNDRED.decide([lost], 0.0)
    assert batches(replace(HUNDRED, skip_lost=True), lost) == [(80, 200)]


def test_without_max_wait_records_never_become_due() -> None:
    assert (
        HUNDRED.decide([replace(backlog(50), state=status(seen=(Seen(end=50, at=0.0),)))], 1e12).due_at
        == math.inf
    )


def learned(*generations: tuple[int, int, int]) -> PlannerState | None:
    after, start = None, 0
    for offsets, records, kept in generations:
        planned = RangePlan(topic="t", partition=0, start=start, end=start + offsets)
        committed = start if kept == records else start + offsets
        found = PartitionOutcome(
            TP, committed, start + offsets, records, kept, start + offsets, read_from=start
        )
        after = remember(after, planned, found)
        start = committed
    return after


def test_the_density_is_learned_from_reads() -> None:
    after = learned((200, 100, 0))

    assert batches(HUNDRED, replace(backlog(400, 200), state=after)) == []
    assert batches(HUNDRED, replace(backlog(420, 200), state=after)) == [(200, 100)]


def test_a_read_without_result_delays_the_next_one() -> None:
    after = learned((100, 90, 90))

    assert after is not None
    assert after.in_vain == 90
    assert batches(HUNDRED, replace(backlog(200), state=after)) == []
    assert batches(HUNDRED, replace(backlog(240), state=after)) == [(0, 200)]


def test_a_multiplying_transform_needs_fewer_offsets_per_batch() -> None:
    # Regression: three records shared an offset, and the planner waited for as many offsets as a batch has
    # records.
    after = learned((100, 300, 0))

    assert batches(HUNDRED, replace(backlog(130, 100), state=after)) == []
    assert batches(HUNDRED, replace(backlog(140, 100), state=after)) == [(100, 100)]
    assert batches(HUNDRED, replace(backlog(190, 100), state=after)) == [(100, 200)]


def test_the_estimate_adapts_when_a_transform_multiplies_less() -> None:
    after, start, in_vain = learned((100, 1_000, 0)), 100, 0
    for end in range(100, 5_000, 10):
        for planned in HUNDRED.decide([replace(backlog(end, start), state=after)], 0.0).ranges:
            read = planned.end - planned.start
            kept = read % 100
            in_vain += kept
            found = PartitionOutcome(
                TP, planned.end - kept, planned.end, read, kept, planned.end, read_from=start
            )
            after, start = remember(after, planned, found), start + read - kept

    assert start >= 4_000
    assert in_vain <= (start - 100) / 2 + 200


def test_the_end_of_wide_gaps_is_detected_soon() -> None:
    after = learned((100_000, 100, 0))

    assert batches(HUNDRED, replace(backlog(103_000, 100_000), state=after)) == []
    assert batches(HUNDRED, replace(backlog(103_500, 100_000), state=after)) == [(100_000, 3_500)]


def test_a_resting_partition_is_read_if_it_may_hold_a_batch() -> None:
    after = learned((10_000, 100, 0))
    assert after is not None
    waiting = replace(
        backlog(10_100, 10_000), state=after.model_copy(update={"seen": (Seen(end=10_100, at=5.0),)})
    )

    decision = HUNDRED.decide([waiting], 6.0)
    assert (decision.ranges, decision.due_at) == ((), 65.0)
    assert batches(HUNDRED, waiting, now=65.0) == [(10_000, 100)]
    assert HUNDRED.decide([replace(waiting, available=OffsetRange(0, 10_099))], 1e9).ranges == ()


def test_a_huge_backlog_that_is_due_is_cut_by_its_records_not_its_offsets() -> None:
    planner = replace(HUNDRED, max_records=200)
    sparse = replace(backlog(100_000, 1_000), state=learned((1_000, 100, 0)))
    decision = planner.decide([sparse], 0.0, flush=True)

    [cut] = planner.share(decision.ranges, decision)
    assert (cut.records, cut.due) == (200, False)
    assert 3_000 < cut.end < 4_000
