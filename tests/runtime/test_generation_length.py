from __future__ import annotations

import math

import pytest

from sinksdk import BatchPolicy, OffsetRange
from sinksdk.runtime.planner import LEAST, Backlog, Planner, Turns
from tests.runtime.running_sinks import P0, P1


def lengths(turns: Turns, rate: float, generations: int, *, constant: float = 0.0) -> list[float]:
    found = []
    for _ in range(generations):
        found.append(constant + turns.most / rate)
        turns.record(found[-1], is_cut=True)
    return found


@pytest.mark.parametrize("rate", [5_000.0, 30_000.0, 1_000_000.0])
def test_generations_grow_to_generation_max_ms(rate: float) -> None:
    *_, before, last = lengths(Turns(60.0), rate, 5)
    assert (before, last) == (pytest.approx(60.0, rel=0.1), pytest.approx(60.0, rel=0.1))


def test_ranges_shrink_when_a_sink_becomes_slow() -> None:
    turns = Turns(60.0)
    lengths(turns, 50_000.0, 5)
    assert lengths(turns, 5_000.0, 2) == [pytest.approx(600.0, rel=0.1), pytest.approx(60.0, rel=0.1)]
    assert lengths(turns, 50_000.0, 2) == [pytest.approx(6.0, rel=0.1), pytest.approx(48.0, rel=0.3)]


@pytest.mark.parametrize("constant", [10.0, 59.0, 70.0, 600.0])
def test_fixed_costs_do_not_shrink_ranges_below_the_minimum(constant: float) -> None:
    # Shorter turns would not shorten Spark's queue, or the commit of a warehouse.
    turns = Turns(60.0)
    lengths(turns, 10_000.0, 50, constant=constant)
    assert turns.most >= LEAST


def test_the_record_limit_grows_after_short_generations() -> None:
    turns = Turns(60.0)
    turns.record(600.0, is_cut=True)
    for _ in range(3):
        turns.record(1.0, is_cut=True)
    assert turns.most == 512 * LEAST


def test_a_generation_that_read_all_records_is_not_measured() -> None:
    turns = Turns(60.0)
    turns.record(1.0, is_cut=False)
    assert turns.most == LEAST


def test_generation_max_ms_of_zero_means_no_limit() -> None:
    turns = Turns(0.0)
    turns.record(86_400.0, is_cut=True)
    assert turns.most == math.inf


@pytest.mark.parametrize(("most", "batches"), [(45_000, (2, 2)), (9_000, (1, 1)), (math.inf, (7, 3))])
def test_a_cut_range_ends_with_a_complete_batch(most: float, batches: tuple[int, int]) -> None:
    planner = Planner(BatchPolicy(max_records=10_000))
    backlogs = [Backlog(P0, OffsetRange(0, 75_000), None), Backlog(P1, OffsetRange(0, 31_000), None)]
    decision = planner.decide(backlogs, 0.0)
    ranges = planner.share(decision.ranges, decision, most)
    assert [r.records for r in ranges] == [10_000 * n for n in batches]
    assert not any(r.due for r in ranges)


def test_long_ranges_get_the_share_that_short_ones_leave() -> None:
    planner = Planner(BatchPolicy())
    backlogs = [Backlog(P0, OffsetRange(0, 1_000_000), None), Backlog(P1, OffsetRange(0, 10), None)]
    decision = planner.decide(backlogs, 0.0, flush=True)
    ranges = planner.share(decision.ranges, decision, 200_000)
    assert [r.end for r in ranges] == [199_990, 10]
