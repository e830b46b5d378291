"""Thousands of schedules of DataFrame writes with crashes, zombies, second attempts and new checkpoints."""

from __future__ import annotations

import pytest

from property_tests.exercised import EXERCISED
from property_tests.simulation.frame_schedule import run
from property_tests.simulation.pins import FRAMES
from property_tests.simulation.runs import AT_ONCE, IN_BRIEF, TIMEOUT, portions, run_some
from tests.helpers.depth import DEPTH, SEED

pytestmark = TIMEOUT

EXPECTED = (
    "crash",
    "pause",
    "killed",
    "driver killed",
    "frozen for long",
    "lost before the effect",
    "lost after the effect",
    "refused",
    "abort",
    "batch write",
    "another checkpoint",
    "query started again",
    "a run takes over",
    "second attempt beside the first",
    "attempt whose result was not taken",
    "attempt ended by FencedException",
    "skipped by a task",
)


@pytest.mark.slow
def test_rows_are_written_once_in_a_few_schedules() -> None:
    happened = run_some(run, range(SEED - IN_BRIEF, SEED))

    assert happened["schedules"] == IN_BRIEF
    assert happened["crash"]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("seeds", portions(DEPTH.schedules, SEED), ids="from {0.start}".format)
def test_dataframes_are_exactly_once_under_random_schedules(seeds: range) -> None:
    happened = run_some(run, seeds)
    EXERCISED["DataFrames that are written"].update(happened)

    assert happened["schedules"] == AT_ONCE
    assert happened["checkpoint went back"] >= AT_ONCE // 20
    assert happened["checkpoint refused"] >= AT_ONCE // 50
    assert happened["sink under the name of DataFrames"] >= AT_ONCE // 20
    assert happened["driver ended: WrongKindException"] >= AT_ONCE // 50
    assert not [what for what in EXPECTED if happened[what] < AT_ONCE // 10], "something hardly ever happened"


def test_seed_determines_schedule() -> None:
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", FRAMES.mutations)
def test_mutation_of_the_batch_commit_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    FRAMES.notice(name, monkeypatch, SEED)
