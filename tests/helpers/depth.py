"""How much a run of the tests tries, and where its chance begins: read in this one place.

``SINKSDK_TEST_DEPTH`` is ``ci`` (what every run does unless told otherwise) or ``nightly`` (``make nightly``).
``SINKSDK_TEST_SEED`` is the seed that everything random starts from. Without it the commit gives one: another
commit tries other schedules, the same commit the same ones again. Where ``CI`` is set, Hypothesis draws for ``@given``
from the code of the test instead: each run tries the same examples, until the test is changed.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import HealthCheck, settings

_ROOT = Path(__file__).parents[2]


class Depth(NamedTuple):
    """How much is tried of each kind.

    Args:
        name: of the depth.
        schedules: random schedules of the simulated sink, and as many of the simulated source.
        deploys: simulated rolling deploys.
        examples: that Hypothesis tries for a property.
        cases: of the test kit for one sink.
        stride: of so many positions of a lost answer one is tried.
    """

    name: str
    schedules: int
    deploys: int
    examples: int
    cases: int
    stride: int


_DEPTHS: Final = {
    depth.name: depth
    for depth in (
        Depth("ci", schedules=1_000, deploys=25, examples=200, cases=100, stride=10),
        Depth("nightly", schedules=10_000, deploys=1_000, examples=1_000, cases=1_000, stride=1),
    )
}


def _commits_seed() -> int:
    """A number that follows from the commit that is checked out; 0 where there is no repository."""
    asked = ["git", "-C", str(_ROOT), "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(done.stdout[:7], 16) if done.returncode == 0 else 0


DEPTH: Final = _DEPTHS[os.environ.get("SINKSDK_TEST_DEPTH", "ci")]
SEED: Final = int(os.environ.setdefault("SINKSDK_TEST_SEED", str(_commits_seed())))
"""The environment hands it on to the worker processes of pytest-xdist."""


def load_profile() -> None:
    """Load Hypothesis's settings of all tests: a busy machine is no failure, with and without ``CI``."""
    settings.register_profile(
        "sinksdk",
        max_examples=DEPTH.examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("sinksdk")


def in_words() -> str:
    """What a run prints at its head, so that it can be repeated."""
    return f"depth {DEPTH.name}; to repeat what is random: SINKSDK_TEST_SEED={SEED}"
