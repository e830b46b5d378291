"""A flush commits all present records, tails included, in any number of turns."""

from __future__ import annotations

from typing import Any

import pytest

from sinksdk import BatchPolicy
from sinksdk.control.herder import Herder
from sinksdk.store import committed_offsets
from tests.runtime.running_sinks import P0, Connector
from tests.runtime.test_idle import Idle

TURNS = pytest.mark.parametrize(
    ("settings", "lengths"),
    [
        pytest.param({}, [10, 80, 15], id="each generation eight times as long as the previous one"),
        pytest.param({"generation.max.records": 40}, [10, 40, 40, 15], id="at most 40 records"),
        pytest.param({"generation.max.ms": 0}, [105], id="no limit"),
    ],
)


class Batched(Connector):
    def batch_policy(self, config: Any) -> BatchPolicy:
        return BatchPolicy(max_records=10, max_wait=None)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinksdk.runtime.planner.LEAST", 10)


def idle_until(seconds: float, ends: int, settings: dict[str, Any], *, is_flushed: bool) -> Idle:
    idle = Idle(connector=Batched(), **{"poll.interval.ms": 1_000, **settings})

    def grow() -> None:
        idle.source.ends[P0] = ends
        if is_flushed:
            Herder(idle.store).flush("c")

    idle.source.ends[P0] = 0
    idle.at(seconds, grow)
    return idle


def lengths_read(idle: Idle) -> list[int]:
    return [
        r.records or r.end - r.start for plan in idle.launcher.plans for t in plan.tasks for r in t.ranges
    ]


def committed(idle: Idle) -> int:
    return committed_offsets(idle.store, "c")[P0].offset


@TURNS
def test_a_flush_includes_the_last_records_of_a_backlog_of_several_generations(
    settings: dict[str, Any], lengths: list[int]
) -> None:
    # Regression: the flush ended with the first turn, and five records waited for a full file. Records that
    # come after the flush wait as usual.
    idle = idle_until(20.2, 105, settings, is_flushed=True)
    idle.at(40.0, lambda: idle.source.ends.update({P0: 112}))
    idle.driver.run()
    assert (lengths_read(idle), committed(idle)) == (lengths, 105)


@TURNS
def test_without_a_flush_the_last_records_wait(settings: dict[str, Any], lengths: list[int]) -> None:
    idle = idle_until(20.2, 105, settings, is_flushed=False)
    idle.driver.run()
    assert (lengths_read(idle), committed(idle)) == ([*lengths[:-1], lengths[-1] - 5], 100)


@TURNS
def test_until_caught_up_commits_the_last_records_after_several_generations(
    settings: dict[str, Any], lengths: list[int]
) -> None:
    idle = Idle(connector=Batched(), **settings)
    idle.source.ends[P0] = 105
    assert idle.driver.run(until_caught_up=True) is None
    assert (lengths_read(idle), committed(idle)) == (lengths, 105)
