"""A sink that keeps its own offsets: crashes, zombies, restored backups; each row is in its table, and once.

And the test of the tests: with one piece of its moves left out, the simulation must fail.
"""

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
def test_whatever_happens_the_table_is_a_prefix_of_the_log() -> None:
    """After each insert there is no gap and nothing twice, wherever the sink has moved; in the end it has everything."""
    happened = run_some(run, range(SEED, SEED + _SCHEDULES))
    EXERCISED["sinks that keep their own offsets"].update(happened)

    assert happened["schedules"] == _SCHEDULES
    assert not [what for what in EXPECTED if happened[what] < _SCHEDULES // 40], (
        "something hardly ever happened"
    )


def test_a_seed_is_a_story() -> None:
    """The same seed gives the same schedule, step by step; another one gives another."""
    assert run(7) == run(7)
    assert run(7) != run(8)


@pytest.mark.slow
@pytest.mark.parametrize("name", WATERMARKS.mutations)
def test_a_move_with_a_piece_left_out_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is needed: without it a schedule fails within three minutes of computing, and says how."""
    WATERMARKS.notice(name, monkeypatch, SEED)
