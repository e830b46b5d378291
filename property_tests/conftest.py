"""Sets the number of cases of property tests, and prints what they exercised at the end of each run."""

from __future__ import annotations

from typing import Any

import pytest

from property_tests.exercised import EXERCISED
from tests.helpers.depth import SEED, load_profile

load_profile()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--hypothesis-seed") is None:
        config.option.hypothesis_seed = str(SEED)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if (output := getattr(session.config, "workeroutput", None)) is not None:
        output["exercised"] = {title: dict(counts) for title, counts in EXERCISED.items()}


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    for title, counts in getattr(node, "workeroutput", {}).get("exercised", {}).items():
        EXERCISED[title].update(counts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the summary also for passing runs, which may have exercised nothing."""
    for title, counts in EXERCISED.items():
        terminalreporter.section(f"exercised by {title}")
        for what, count in sorted(counts.items()):
            terminalreporter.write_line(f"{count:>9,}  {what}")
