"""The kit for sources fails each broken source of the zoo and passes the correct ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sinksdk.testing import MemoryOrigin, SourceCapabilities, SourceContractError, check_source, replay_source
from tests.helpers.tiers import extended_after
from tests.testing import source_zoo as zoo

pytestmark = pytest.mark.slow

MOST_STEPS = 4
MOST_TASKS = 2_000
"""Tasks that the kit may create to find and shorten a failure: three times the most that it needs."""
PATIENCE = {"CannotBeStopped": 0.3, "HangsInStop": 0.3}
"""Seconds after which the kit gives up a source that never returns; others have the kit's default."""

TRACES: dict[str, tuple[Sequence[tuple[Any, ...]], str]] = {
    "SkipsAhead": ([("run", 0, 0)], "lost: b'a-3' is in `expected`, but not in the topics"),
    "LagsBehind": ([], "twice: b'a-5', b'b-3'"),
    "IgnoresCommittedOffsets": ([], "the offset of {'part': 'a'} went back from {'next': 6} to {'next': 3}"),
    "GoesBack": ([], "the offset of {'part': 'a'} went back from {'left': 3} to {'left': 0}"),
    "AdvancesBeforeTheRead": (
        [("fault", "origin", 0, "retriable error"), ("run", 0, 1)],
        "lost: b'a-0', b'a-1', b'a-2' are",
    ),
    "SwallowsErrors": ([("fault", "origin", 0, "permanent error"), ("run", 0, 1)], "lost: b'a-0' is"),
    "Shuffles": ([], 'out of order: b\'a-1\' of the source partition {"part":"a"}'),
    "NamesPartitionsByTask": ([("run", 0, 0), ("run", 1, 0)], "twice: b'a-0', b'a-1', b'a-2' are"),
    "SharesItsPosition": (
        [("fault", "task", 2, "crash after"), ("run", 0, 0)],
        "SharesItsPosition.next changed while a task ran",
    ),
    "NeverWaits": ([("idle",)], "which is a busy loop"),
    "CannotBeStopped": ([], "poll() still waits 0.3 s after stop()"),
    "HangsInStop": ([], "stop() did not return within 0.3 s"),
    "LeavesAThread": ([], "after stopped(), task 0 still has the thread 'forgotten'"),
    "LeavesAFile": ([], "after stopped(), task 0 still has the open file /dev/null"),
    "LeavesAFileAfterAFailedStart": (
        [("fault", "topics", 1, "permanent error"), ("run", 0, 0)],
        "after stopped(), task 0 still has the open file /dev/null",
    ),
    "ReleasesInStop": ([], "stopped() ran 2 times, because the task called it"),
    "ReleasesUnstartedResources": (
        [("fault", "topics", 1, "permanent error"), ("run", 0, 0)],
        "object has no attribute 'next' after start() had failed",
    ),
    "DropsTheLastLine": ([], "lost: b'c-2' is"),
    "AcknowledgesBeforeCommit": ([("fault", "task", 2, "crash after"), ("run", 0, 0)], "lost: b'a-0'"),
    "EndsTransactionsWithinAnOffset": ([("fault", "task", 3, "crash before"), ("run", 0, 0)], "lost: b'a-1'"),
}
"""A failing schedule of each broken source, as an author would write a regression test."""

by_name = {specimen.name: specimen for specimen in zoo.BROKEN}


def options_of(specimen: zoo.SourceSpecimen) -> dict[str, Any]:
    return {
        "expected": MemoryOrigin.everything,
        "task_configs": zoo.share,
        "capabilities": specimen.capabilities,
    }


@pytest.fixture(autouse=True)
def forget_what_is_shared() -> None:
    zoo.SharesItsPosition.next.clear()


def test_each_broken_task_has_a_replay() -> None:
    assert len(by_name) == len(zoo.BROKEN) >= 10
    assert set(TRACES) == set(by_name)


@pytest.mark.parametrize("name", extended_after(3, TRACES))
def test_replay_finds_the_problem_of_each_broken_task(name: str) -> None:
    steps, problem = TRACES[name]
    patience = PATIENCE.get(name, 2.0)
    with pytest.raises(SourceContractError) as caught:
        replay_source(steps, by_name[name].make_task, patience=patience, **options_of(by_name[name]))
    assert problem in caught.value.problem


@pytest.mark.extended
@pytest.mark.parametrize("honest", extended_after(1, zoo.HONEST), ids=lambda specimen: specimen.name)
def test_correct_sources_pass_the_replays_of_the_broken_ones(honest: zoo.SourceSpecimen) -> None:
    for steps in {tuple(steps) for steps, _ in TRACES.values()}:
        replay_source(steps, honest.make_task, patience=20.0, **options_of(honest))


def counting(make_task: Callable[..., Any], made: Counter[str]) -> Callable[..., Any]:
    def make(*arguments: Any) -> Any:
        made[make_task.__name__] += 1
        return make_task(*arguments)

    return make


@pytest.mark.extended
def test_each_broken_task_fails_with_default_settings() -> None:
    made: Counter[str] = Counter()
    for specimen in zoo.BROKEN:
        zoo.SharesItsPosition.next.clear()
        with pytest.raises(SourceContractError) as caught:
            check_source(counting(specimen.make_task, made), **options_of(specimen))
        print(f"\n{specimen.name}, {made[specimen.name]} tasks: {caught.value}")
        assert TRACES[specimen.name][1].partition(" b'")[0].partition(" 0.3")[0] in str(caught.value), (
            specimen.name
        )
        assert len(caught.value.steps) <= MOST_STEPS, specimen.name
        assert made[specimen.name] <= MOST_TASKS, specimen.name


@pytest.mark.parametrize("honest", extended_after(1, zoo.HONEST), ids=lambda specimen: specimen.name)
def test_correct_sources_pass(honest: zoo.SourceSpecimen) -> None:
    report = check_source(honest.make_task, cases=100, seed=11, patience=20.0, **options_of(honest))
    assert report.cases == 100
    assert report.capabilities is honest.capabilities


ROWS: dict[str, Any] = {
    "expected": zoo.Table.truth,
    "origin": zoo.Table,
    "changes": [
        lambda table: table.put(b"2", b"second of 2"),
        lambda table: table.put(b"5", b"first of 5"),
    ],
}


def test_source_that_reads_the_current_rows_passes() -> None:
    report = check_source(zoo.RowSource, cases=100, patience=20.0, **ROWS)
    assert report.cases == 100


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (zoo.MissesChanges, "lost: the key b'2' has the value b'second of 2' in `expected`, but "),
        (zoo.InventsRows, 'the keys b"1\'", '),
        (zoo.RepeatsRows, "twice: b'first of "),
        (
            zoo.ReturnsOlderStates,
            "lost: the key b'2' has the value b'second of 2' in `expected`, but its last record",
        ),
    ],
)
def test_broken_sources_of_current_rows_fail(wrong: type[zoo.RowSource], problem: str) -> None:
    with pytest.raises(SourceContractError) as caught:
        check_source(wrong, cases=100, capabilities=SourceCapabilities(grows=False), **ROWS)
    assert caught.value.problem.startswith(problem)
