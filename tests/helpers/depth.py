"""The number of cases that a test run tries, and the seed of everything random.

``SINKSDK_TEST_DEPTH`` is ``ci``, the default, or ``nightly`` (``make nightly``). ``SINKSDK_TEST_SEED``
defaults to the commit: another commit tries other schedules. Where ``CI`` is set, Hypothesis derives its
examples from the test's code instead.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Final, NamedTuple

from hypothesis import HealthCheck, settings

_ROOT = Path(__file__).parents[2]


class Depth(NamedTuple):
    # Numbers of cases. A lost response is tried at one of ``stride`` positions.
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
    # The seed is 0 if there is no repository.
    asked = ["git", "-C", str(_ROOT), "rev-parse", "--short=7", "HEAD"]
    done = subprocess.run(asked, capture_output=True, text=True, check=False)
    return int(done.stdout[:7], 16) if done.returncode == 0 else 0


DEPTH: Final = _DEPTHS[os.environ.get("SINKSDK_TEST_DEPTH", "ci")]
# The worker processes of pytest-xdist read the seed from the environment.
SEED: Final = int(os.environ.setdefault("SINKSDK_TEST_SEED", str(_commits_seed())))


def load_profile() -> None:
    # A slow or busy machine must not fail a test.
    settings.register_profile(
        "sinksdk",
        max_examples=DEPTH.examples,
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("sinksdk")


def in_words() -> str:
    return f"depth {DEPTH.name}; to repeat what is random: SINKSDK_TEST_SEED={SEED}"
