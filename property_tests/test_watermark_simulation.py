"""Thousands of schedules of a sink that keeps its own offsets: each row is in its table once."""

from __future__ import annotations

import pytest

from property_tests.exercised import EXERCISED
from property_tests.simulation.pins import WATERMARKS
from property_tests.simulation.runs import TIMEOUT, run_some
from property_tests.simulation.watermark_schedule import run
from tests.helpers.depth import DEPTH, SEED

pytestmark = TIMEOUT

_SCHEDULES = DEPTH.schedules // 8
EXPECTED = (
    "crash",
    "pause",
    "lost after the effect",
    "backup restored",
    "asked back",
    "asked forward",
    "second copy of a task",
    "task left behind",
    "another driver is started beside",
    "attempt ended by FencedException",
)


@pytest.mark.extended
@pytest.mark.slow
def test_table_stays_a_prefix_of_the_log_under_random_schedules() -> None:
    happened = run_some(run, range(SEED, SEED + _SCHEDULES))
    EXERCISED["sinks that keep their own offsets"].update(happened)

    assert happened["schedules"] == _SCHEDULES
    assert not [what for what in EXPECTED if happened[what] < _SCHEDULES // 40], (
        "something hardly ever happened"
    )


def test_seed_determines_schedule() -> None:
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", WATERMARKS.mutations)
def test_mutation_of_offset_moves_fails(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    WATERMARKS.notice(name, monkeypatch, SEED)
