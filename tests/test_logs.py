"""What is logged, and how often."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from sinksdk.logs import Outage


def test_an_outage_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    """What fails each second fills no log; once it has worked, the next failure is news again."""
    outage = Outage(logging.getLogger("sinksdk.test"))
    for attempt in (1, 2, 3):
        outage.failed("no answer, attempt %d", attempt)
    outage.worked()
    outage.failed("no answer, attempt %d", 4)

    warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warnings == ["no answer, attempt 1", "no answer, attempt 4"]


@pytest.mark.parametrize("verbose", [True, False])
def test_warnings_are_seen_without_asking_for_them(*, verbose: bool) -> None:
    """Each is something an operator must know; details and stack traces come with --verbose."""
    code = f"""
import logging
from sinksdk.logs import configure_logging
configure_logging(verbose={verbose})
log = logging.getLogger("sinksdk.x")
log.info("a detail")
try:
    1 / 0
except ZeroDivisionError:
    log.warning("the group is in use", exc_info=True)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "WARNING sinksdk.x: the group is in use" in done.stderr
    assert ("a detail" in done.stderr, "Traceback" in done.stderr) == (verbose, verbose)
