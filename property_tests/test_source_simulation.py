"""Thousands of schedules of a source's drivers, tasks and zombies: each row is in the topic once."""

from __future__ import annotations

import pytest

from property_tests.exercised import EXERCISED
from property_tests.simulation.fencing_table import ROWS, Case, run_case
from property_tests.simulation.pins import DIRECTORIES, SOURCE
from property_tests.simulation.runs import AT_ONCE, IN_BRIEF, TIMEOUT, portions, run_some
from property_tests.simulation.source_schedule import run
from tests.helpers.depth import DEPTH, SEED

pytestmark = TIMEOUT

OFTEN = (
    "crash",
    "pause",
    "lost before the effect",
    "lost after the effect",
    "lost in a network partition",
    "refused",
    "another driver is started beside",
    "driver killed",
    "second copy of a task",
    "task left behind",
    "frozen in a transaction",
    "frozen about to fence its predecessor",
    "frozen before it is its task's owner",
    "frozen in its round of fencing",
    "fencing failed",
    "asked: REBALANCE",
    "a connector asks for new configurations",
    "generation without tasks",
    "asked: SHUTDOWN",
    "operator: configure",
    "driver ended: FencedException",
    "attempt ended by FencedException",
    "round: nothing pending",
    "round: no record",
    "round: from one task to one",
    "round: from one task to more",
    "round: from several tasks to fewer",
    "round: from several tasks to as many",
    "round: from several tasks to more",
    "task abandoned before it had a writer",
    "task abandoned after its writer was made",
)
"""Events that at least one schedule in twenty must have, each row of KIP-618's table among them."""


@pytest.mark.slow
def test_rows_are_in_the_topic_once_in_a_few_schedules() -> None:
    happened = run_some(run, range(SEED - IN_BRIEF, SEED))

    assert happened["schedules"] == IN_BRIEF
    assert happened["crash"]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("seeds", portions(DEPTH.schedules, SEED), ids="from {0.start}".format)
def test_source_is_exactly_once_under_random_schedules(seeds: range) -> None:
    happened = run_some(run, seeds)
    EXERCISED["the simulated cluster of a source"].update(happened)

    assert happened["schedules"] == AT_ONCE
    assert not [what for what in OFTEN if happened[what] < AT_ONCE // 20], "something hardly ever happened"


def test_seed_determines_schedule() -> None:
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.parametrize("case", ROWS, ids=Case.in_words)
def test_fencing_follows_kip_618_decision_table(case: Case) -> None:
    seen = run_case(case)

    assert seen.fenced == case.fenced
    assert seen.recorded == case.after
    assert seen.zombies == case.before


@pytest.mark.slow
@pytest.mark.parametrize("name", SOURCE.mutations)
def test_mutation_of_the_source_protocol_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    SOURCE.notice(name, monkeypatch, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIRECTORIES.mutations)
def test_mutation_of_the_topic_directory_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    DIRECTORIES.notice(name, monkeypatch, SEED)
