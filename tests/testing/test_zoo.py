"""The kit fails each broken sink of the zoo and passes the correct ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import settings

from sinksdk import SinkRecord
from sinksdk.testing import MemoryDestination, SinkContractError, check_sink, replay
from sinksdk.testing.machine import DEFAULTS
from tests.helpers.depth import DEPTH
from tests.helpers.tiers import extended_after
from tests.testing import zoo

pytestmark = pytest.mark.slow

MOST_STEPS = 8
MOST_TASKS = 4_000
"""Tasks that the kit may create to find and shorten a failure: three times the most that it needs."""

TRACES: dict[str, tuple[Sequence[tuple[Any, ...]], str]] = {
    "AcknowledgesEarly": (
        [("deliver", 0, 1), ("commit",)],
        "lost: offset 0 of records-0 is not at the destination",
    ),
    "DividesAnOffset": (
        [("transform", 1), ("deliver", 0, 2), ("commit",)],
        "lost: of the 2 records that a transform created from offset 1 of records-0, only 1 is at the destination",
    ),
    "CountsOffsets": (
        [("transform", 1), ("deliver", 0, 1), ("rebalance",)],
        "lost: of the 2 records that a transform created from offset 0 of records-0, only 1 is at the destination",
    ),
    "KeysByOffset": (
        [("transform", 1), ("deliver", 0, 1), ("commit",)],
        "lost: of the 2 records that a transform created from offset 0 of records-0, only 1 is at the destination",
    ),
    "NamesByStartOffset": (
        [("deliver", 0, 1), ("fence",), ("deliver", 0, 3), ("commit",), ("zombie_close",)],
        "offsets 1, 2 of records-0 are not at the destination, although the committed offset is 3",
    ),
    "FlushesAfterClose": (
        [("deliver", 1, 1), ("lose", 1), ("deliver", 0, 1)],
        "the visible records of records-1 changed after it was closed",
    ),
    "IgnoresLost": ([("deliver", 0, 1), ("lose", 0)], "close wrote offset 0 of records-0"),
    "LetsOffsetsGoBack": (
        [("deliver", 0, 3), ("commit",), ("deliver", 0, 1), ("commit",)],
        "pre_commit returned offset 0 for records-0, below the committed offset",
    ),
    "ClosesEverything": (
        [("deliver", 0, 1), ("deliver", 1, 1), ("lose", 1), ("rebalance",)],
        "lost: offset 0 of records-0 is not at the destination",
    ),
    "SwallowsErrors": (
        [("deliver", 0, 3), ("fault", "destination", 0, "permanent error"), ("commit",)],
        "lost: offsets 0, 1, 2 of records-0 are not at the destination",
    ),
    "MixesPartitions": ([("deliver", 0, 1), ("deliver", 1, 1), ("rebalance",)], "records-"),
    "DropsTheTail": (
        [("deliver", 0, 1)],
        "the committed offset of records-0 is 0, but its last record has offset 0",
    ),
    "TopicBlind": ([("deliver", 0, 1), ("deliver", 2, 1)], "lost: offset 0 of "),
    "DropsNulls": (
        [("deliver", 0, 2)],
        "lost: offset 1 of records-0 is not at the destination, although the committed offset is 2",
    ),
    "DropsEmpty": (
        [("deliver", 0, 1), ("rebalance",)],
        "lost: offset 0 of records-0 is not at the destination, although the committed offset is 1",
    ),
    "DropsKeyless": (
        [("deliver", 0, 3)],
        "lost: offset 2 of records-0 is not at the destination, although the committed offset is 3",
    ),
    "HidesPoison": ([("poison", 0), ("rebalance",)], "neither at the destination nor in the dead letters"),
    "DropsOnRetry": (
        [("fault", "destination", 0, "retriable error"), ("deliver", 0, 1), ("tick", 1), ("commit",)],
        "lost: offset 0 of records-0 is not at the destination",
    ),
    "CountsRefusedRecords": (
        [("fault", "destination", 0, "retriable error"), ("deliver", 0, 1), ("commit",)],
        "lost: offset 0 of records-0 is not at the destination, although the committed offset is 1",
    ),
    "LosesAcceptedRecords": (
        [("fault", "destination", 0, "retriable error"), ("deliver", 0, 3), ("tick", 1), ("rebalance",)],
        "lost: offsets 0, 1 of records-0 are not at the destination, although the committed offset is 3",
    ),
    "OverrulesTheOperator": (
        [("deliver", 0, 2), ("commit",), ("alter", 0, 1), ("deliver", 0, 1)],
        "open requested offset 2 of records-0 after an operator set the offset to 1, which undoes",
    ),
    "SkipsBelowItsLastRow": (
        [("alter", 0, 2), ("deliver", 0, 1), ("alter", 0, 1), ("deliver", 0, 1)],
        "lost: offset 1 of records-0 is not at the destination, although the committed offset is 3",
    ),
    "CountsInItsMetadata": (
        [("alter", 0, 1), ("deliver", 0, 1)],
        "recovery of records-0 fails although no fault is injected: ValueError: invalid literal for int()",
    ),
    "AppendsAgain": (
        [("fault", "destination", 0, "lost response"), ("deliver", 0, 1), ("tick", 1)],
        "seen twice: read_back returned offset 0 of records-0 2 times",
    ),
    "KeepsItsBuffer": (
        [("deliver", 0, 1), ("lose", 0), ("deliver", 0, 2), ("commit",)],
        "seen twice: read_back returned offset 0 of records-0 2 times",
    ),
    "PublishesBeforeCommit": (
        [("deliver", 0, 3), ("fault", "commit log", 0, "permanent error"), ("commit",)],
        "of records-0, but the committed offset is 0",
    ),
    "DiscardsWhenFenced": (
        [("deliver", 0, 3), ("fault", "commit log", 0, "lost response"), ("commit",)],
        "recovery of records-0 fails although no fault is injected: ConnectException: staged-0 does not exist",
    ),
    "ForgetsTokens": (
        [("deliver", 0, 1), ("rebalance",)],
        "lost: offset 0 of records-0 is not at the destination",
    ),
    "PublishesTwice": (
        [("deliver", 0, 3), ("fault", "destination", 1, "crash after"), ("commit",), ("deliver", 0, 1)],
        "seen twice: read_back returned offset 0 of records-0 2 times",
    ),
    "DiscardsNothing": (
        [("deliver", 0, 3), ("fault", "commit log", 0, "crash before"), ("commit",)],
        "leftover data at the destination: staged-0, although discard received the token",
    ),
    "NotesTooLate": (
        [("fault", "commit log", 0, "crash before"), ("deliver", 0, 1)],
        "leftover data at the destination that no commit and no token names: staged-0",
    ),
    "ReusesIds": (
        [("deliver", 0, 1)],
        "token records-0+0 was discarded before, and another process may be about to discard it",
    ),
    "DiscardsOthers": (
        [("deliver", 0, 1), ("freeze", 1), ("crash",), ("deliver", 0, 1)],
        "staged-1 does not exist: it was already discarded",
    ),
}
"""A failing schedule of each broken sink, as an author would write a regression test."""

by_name = {specimen.name: specimen for specimen in zoo.BROKEN}


def options_of(specimen: zoo.Specimen) -> dict[str, Any]:
    return {
        "read_back": MemoryDestination.read_back,
        "capabilities": specimen.capabilities,
        "alter": specimen.alter,
        "record": specimen.record,
    }


def test_each_broken_task_has_a_replay() -> None:
    assert len(by_name) == len(zoo.BROKEN) >= 10
    assert set(TRACES) == set(by_name)


@pytest.mark.parametrize("name", TRACES)
def test_replay_finds_the_problem_of_each_broken_task(name: str) -> None:
    steps, problem = TRACES[name]
    with pytest.raises(SinkContractError) as caught:
        replay(steps, by_name[name].make_task, **options_of(by_name[name]))
    assert problem in caught.value.problem


@pytest.mark.extended
@pytest.mark.parametrize("honest", extended_after(1, zoo.HONEST), ids=lambda specimen: specimen.name)
def test_correct_sinks_pass_the_replays_of_the_broken_ones(honest: zoo.Specimen) -> None:
    for steps, _ in TRACES.values():
        if honest.capabilities.dead_letters or ("poison", 0) not in steps:
            replay(steps, honest.make_task, **options_of(honest))


def counting(make_task: Callable[..., Any], made: Counter[str]) -> Callable[..., Any]:
    def make(*arguments: Any) -> Any:
        made[make_task.__name__] += 1
        return make_task(*arguments)

    return make


def found(specimen: zoo.Specimen) -> SinkContractError:
    made: Counter[str] = Counter()
    with pytest.raises(SinkContractError) as caught:
        check_sink(counting(specimen.make_task, made), **options_of(specimen))
    assert made[specimen.name] <= MOST_TASKS
    return caught.value


@pytest.mark.parametrize(
    "name",
    extended_after(
        2,
        [
            "NamesByStartOffset",
            "DiscardsWhenFenced",
            "AppendsAgain",
            "DividesAnOffset",
            "CountsOffsets",
            "KeysByOffset",
        ],
    ),
)
def test_broken_sink_fails_with_few_steps(name: str) -> None:
    assert len(found(by_name[name]).steps) <= MOST_STEPS


class PerRecord(zoo.RangeSink):
    """Writes a file for each record, named without its topic."""

    def write(self, name: str, rows: Sequence[SinkRecord]) -> None:
        self.destination.write(f"{rows[0].partition}+{rows[0].offset}", rows)


@pytest.mark.parametrize("make_task", [zoo.DropsTheTail, PerRecord])
def test_failure_without_faults_is_shortened(make_task: type[zoo.RangeSink]) -> None:
    with pytest.raises(SinkContractError) as caught:
        check_sink(make_task, read_back=MemoryDestination.read_back)
    assert len(caught.value.steps) <= 2


@pytest.mark.extended
def test_each_broken_task_fails_with_default_settings() -> None:
    for specimen in zoo.BROKEN:
        failure = found(specimen)
        print(f"\n{specimen.name}: {failure}")
        assert len(failure.steps) <= MOST_STEPS, specimen.name
        with pytest.raises(SinkContractError) as again:
            replay(failure.steps, specimen.make_task, **options_of(specimen))
        assert (again.value.problem, again.value.story) == (failure.problem, failure.story)


@pytest.mark.parametrize("honest", extended_after(1, zoo.HONEST), ids=lambda specimen: specimen.name)
def test_correct_sinks_pass(honest: zoo.Specimen) -> None:
    report = check_sink(
        honest.make_task, settings=settings(DEFAULTS, max_examples=2 * DEPTH.cases), **options_of(honest)
    )
    assert report.cases >= 2 * DEPTH.cases
    assert report.guarantee is honest.capabilities.guarantee
