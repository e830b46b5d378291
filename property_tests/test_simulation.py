"""Any number of drivers, doubled tasks, crashes, pauses, lost answers: exactly once, on thousands of schedules.

And the test of the tests: with one piece of the protocol left out, the simulation must fail.
"""

from __future__ import annotations

from collections import Counter

import pytest

from property_tests.exercised import EXERCISED, until_each_happened
from property_tests.simulation import races
from property_tests.simulation.pins import DEPLOYS, RACES, SINK, TOPIC_CHANGES
from property_tests.simulation.runs import AT_ONCE, IN_BRIEF, TIMEOUT, portions, run_some
from property_tests.simulation.schedule import run, run_rolling_deploy
from tests.helpers.depth import DEPTH, SEED

pytestmark = TIMEOUT

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
    "commits set apart",
    "asked: REBALANCE",
    "asked: SHUTDOWN",
    "driver ended: FencedException",
    "attempt ended by FencedException",
    "connector deleted",
    "connector created again",
    "group written",
    "schedules with a transform",
    "transform dropped",
    "transform multiplied",
    "schedules with bad records",
    "dead letter",
    "dead letter written again",
    "error although it took effect",
)
RARE = ("late row was passed over before it came", "files of a part of a commit moved away")
"""Events that occur about five times in a thousand schedules, several times in one: a thousand may lack them."""


@pytest.mark.slow
def test_records_are_archived_once_in_a_few_schedules() -> None:
    happened = run_some(run, range(SEED - IN_BRIEF, SEED))

    assert happened["schedules"] == IN_BRIEF
    assert happened["crash"]


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("seeds", portions(DEPTH.schedules, SEED), ids="from {0.start}".format)
def test_whatever_happens_each_record_is_archived_once(seeds: range) -> None:
    """After each step what is visible is committed, once; in the end it is everything and nothing is left."""
    happened = run_some(run, seeds)
    exercised = EXERCISED["the simulated cluster"]
    exercised.update(happened)

    assert happened["schedules"] == AT_ONCE
    assert happened["commit withdrawn"] >= AT_ONCE // 100
    assert happened["schedules with groups of files"] >= AT_ONCE // 5
    assert happened["rows visible above a withdrawn commit"] >= AT_ONCE // 20
    assert happened["schedules with files of keys and headers"] >= AT_ONCE // 10
    assert happened["keys visible above a withdrawn commit"] >= AT_ONCE // 50
    assert happened["order violated"] >= AT_ONCE // 100
    assert happened["deletion asked for while something is unpublished"] >= AT_ONCE // 30
    assert happened["schedules that report records without a value"] >= AT_ONCE // 500
    assert happened["schedules whose store has conditions refused"] >= AT_ONCE // 20
    assert happened["schedules whose store has conditions ignored"] >= AT_ONCE // 20
    assert happened["completed upload that S3 had forgotten"] >= AT_ONCE // 100
    assert happened["listing of uploads that is late, or lacks some"] >= AT_ONCE // 20
    assert happened["schedules whose topic changes"] >= AT_ONCE // 10
    assert happened["topic created again"] >= AT_ONCE // 200
    assert happened["retention removed records before they were committed"] >= AT_ONCE // 20
    assert happened["log lost records below the commit"] >= AT_ONCE // 250
    assert happened["read on past lost records"] >= AT_ONCE // 50
    assert happened["range whose records were removed before they were read"] >= AT_ONCE // 300
    assert happened["commit moved by an operator"] >= AT_ONCE // 50
    assert happened["operator: offsets altered: OffsetsRefusedException"] >= AT_ONCE // 200
    assert happened["operator: offsets altered: ConnectorRunsException"] >= AT_ONCE // 20
    assert happened["schedules with long ranges"] >= AT_ONCE // 10
    assert happened["second attempt committed again"] >= AT_ONCE // 100
    assert happened["old copy of the store restored"] >= AT_ONCE // 50
    assert happened["archive that holds more than the store knows"] >= AT_ONCE // 150
    assert happened["start refused until the offsets are recovered"] >= AT_ONCE // 300
    assert happened["operator: offsets recovered: well"] >= AT_ONCE // 150
    assert happened["hook that takes long"] >= AT_ONCE // 10
    assert happened["schedules with empty values and none in whole records"] >= AT_ONCE // 10
    assert happened["transform failed"] >= AT_ONCE // 30
    assert happened["transform dropped all of a range"] >= AT_ONCE // 10
    assert happened["left so by several generations"] >= AT_ONCE // 150
    assert not [what for what in EXPECTED if happened[what] < AT_ONCE // 10], "something hardly ever happened"

    first = seeds.start + DEPTH.schedules
    exercised.update(until_each_happened(RARE, happened, run, range(first, first + 3 * AT_ONCE)))


def test_a_seed_is_a_story() -> None:
    """The same seed gives the same schedule, step by step; another one gives another."""
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", SINK.mutations)
def test_a_protocol_with_a_piece_left_out_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of the protocol is needed: without it a schedule fails within three minutes of computing, and says how."""
    SINK.notice(name, monkeypatch, SEED)


@pytest.mark.slow
@pytest.mark.parametrize("name", TOPIC_CHANGES.mutations)
def test_a_topic_that_changed_unseen_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recreated topic and a lost tail are seen before records are committed: without that a schedule fails."""
    TOPIC_CHANGES.notice(name, monkeypatch, SEED)


@pytest.mark.slow
def test_a_rolling_deploy_reads_nothing_again() -> None:
    """A second driver is started: the first one flushes, commits and ends, and no record is put a second time."""
    happened: Counter[str] = run_some(run_rolling_deploy, range(SEED, SEED + DEPTH.deploys))
    EXERCISED["rolling deploys in the simulated cluster"].update(happened)

    assert happened["closing commit"] >= DEPTH.deploys


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("name", DEPLOYS.mutations)
def test_a_deploy_that_loses_progress_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking, giving way, committing on close and saying so: without any of them a deploy shows it."""
    DEPLOYS.notice(name, monkeypatch, SEED)


@pytest.mark.extended
@pytest.mark.slow
def test_races_lose_nothing() -> None:
    """Attempts die between commit and publish, or are frozen before a record or an upload is theirs no more."""
    happened = run_some(races.run, range(SEED, SEED + DEPTH.deploys))
    # A fifth of the seeds meet one of these, a fifth the other: the few of a run may meet none.
    rare = ("frozen about to take its record over", "frozen about to complete an upload")
    further = range(SEED + DEPTH.deploys, SEED + 4 * DEPTH.deploys)
    more = until_each_happened(rare, happened, races.run, further)
    EXERCISED["races in the simulated cluster"].update(happened + more)

    assert happened["killed"] >= DEPTH.deploys // 3
    assert happened["commit withdrawn"] >= DEPTH.deploys // 10
    assert happened["frozen about to take its record over"] >= DEPTH.deploys // 50
    assert happened["frozen about to complete an upload"] >= DEPTH.deploys // 100


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("name", RACES.mutations)
def test_an_attempt_that_loses_a_race_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens in segments, withdrawn commits, the last look: without any of them a race shows it."""
    RACES.notice(name, monkeypatch, SEED)
