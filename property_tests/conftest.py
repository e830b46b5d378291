"""How many cases the property tests try: ``HYPOTHESIS_PROFILE`` is dev (default), ci or nightly."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

from property_tests.exercised import EXERCISED

settings.register_profile("dev", max_examples=50, deadline=None)
settings.register_profile("ci", max_examples=200, derandomize=True, deadline=None, print_blob=True)
settings.register_profile("nightly", max_examples=5_000, deadline=None, print_blob=True)

_DEFAULT = "ci" if os.environ.get("CI") == "true" else "dev"
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", _DEFAULT))


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
