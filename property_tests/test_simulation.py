"""Any number of drivers, doubled tasks, crashes, pauses, lost answers: exactly once, on thousands of schedules.

And the test of the tests: with one piece of the protocol left out, the simulation must fail.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Callable

import pytest

from property_tests.exercised import EXERCISED
from property_tests.simulation.mutations import MUTATIONS, ROLLING
from property_tests.simulation.runs import run_all, run_for
from property_tests.simulation.schedule import run, run_rolling_deploy
from property_tests.simulation.seeds import ScheduleFailed

SCHEDULES = 10_000 if os.environ.get("CI") else 500
DEPLOYS = 100 if os.environ.get("CI") else 20
PATIENCE = 60.0  # seconds of computing until a mutation must have been noticed

EXPECTED = (
    "crash",
    "pause",
    "frozen for very long",
    "lost before the effect",
    "lost after the effect",
    "lost in a network partition",
    "refused",
    "another driver is started beside",
    "second copy of a task",
    "task left behind",
    "closing commit",
    "asked: REBALANCE",
    "asked: SHUTDOWN",
    "driver ended: FencedException",
    "attempt ended by FencedException",
)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # minutes on a busy machine
def test_whatever_happens_each_record_is_archived_once() -> None:
    """After each step what is visible is committed, once; in the end it is everything and nothing is left."""
    happened: Counter[str] = Counter()
    for some in run_all(iter(range(SCHEDULES)), run):
        happened += some
    EXERCISED["the simulated cluster"].update(happened)

    assert happened["schedules"] == SCHEDULES
    assert happened["commit withdrawn"] >= SCHEDULES // 100
    assert not [what for what in EXPECTED if happened[what] < SCHEDULES // 10], (
        "something hardly ever happened"
    )


def test_a_seed_is_a_story() -> None:
    """The same seed gives the same schedule, step by step; another one gives another."""
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTATIONS)
def test_a_protocol_with_a_piece_left_out_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of the protocol is needed: without it a schedule fails within a minute of computing, and says how."""
    MUTATIONS[name](monkeypatch)

    with pytest.raises(ScheduleFailed, match=r"again with: python -m property_tests.simulation --seed \d+"):
        run_for(PATIENCE, run, itertools.count(), name)


@pytest.mark.slow
def test_a_rolling_deploy_reads_nothing_again() -> None:
    """A second driver is started: the first one flushes, commits and ends, and no record is put a second time."""
    happened: Counter[str] = Counter()
    for seed in range(DEPLOYS):
        happened += run_rolling_deploy(seed)
    EXERCISED["rolling deploys in the simulated cluster"].update(happened)

    assert happened["closing commit"] >= DEPLOYS


@pytest.mark.slow
@pytest.mark.parametrize("name", ROLLING)
def test_a_deploy_that_loses_progress_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking, giving way, committing on close and saying so: without any of them a deploy shows it."""
    ROLLING[name](monkeypatch)

    with pytest.raises(ScheduleFailed):
        for_many(run_rolling_deploy)


def for_many(live: Callable[[int], object]) -> None:
    """A few seeds."""
    for seed in range(DEPLOYS):
        live(seed)
