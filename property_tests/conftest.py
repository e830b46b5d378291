"""How many cases the property tests try, and what they have met: printed at the end of each run."""

from __future__ import annotations

from typing import Any

import pytest

from property_tests.exercised import EXERCISED
from tests.helpers.depth import SEED, load_profile

load_profile()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Without ``CI``, what Hypothesis draws follows from the run's seed, too."""
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist hands in what it has counted."""
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["exercised"] = {title: dict(counts) for title, counts in EXERCISED.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add up what the workers have counted. One that has died has handed in nothing."""
    for title, counts in getattr(node, "workeroutput", {}).get("exercised", {}).items():
        EXERCISED[title].update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what was exercised, also when all is well: a green run must not be an empty run."""
    for title, counts in EXERCISED.items():
        terminalreporter.section(f"exercised by {title}")
        for what, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:>9,}  {what}")
