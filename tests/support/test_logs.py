"""What is logged, and how often."""

from __future__ import annotations

import json
import logging
import subprocess
import sys

import pytest

from sinksdk.errors import ConnectException
from sinksdk.store import StoreUnavailable
from sinksdk.support.logs import Outage
from sinksdk.testing import ManualClock

pytestmark = pytest.mark.slow


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def test_an_outage_is_told_when_it_begins_and_when_it_is_over(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """What fails each second fills no log; once it has worked, the next failure is news again."""
    outage = Outage(logging.getLogger("sinksdk.test"), "the disk", clock=clock.now)
    for attempt in (1, 2, 3):
        outage.failed("no answer, attempt %d", attempt)
        clock.advance(10.0)
    outage.worked()
    outage.worked()
    outage.failed("no answer, attempt %d", 4)

    assert warnings(caplog) == [
        "no answer, attempt 1",
        "the disk works again after 30.0 s (3 failures)",
        "no answer, attempt 4",
    ]


def test_an_outage_of_hours_is_told_of_now_and_then(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """Every ten minutes: who looks at the end of a log sees that it lasts."""
    outage = Outage(logging.getLogger("sinksdk.test"), "the disk", clock=clock.now)
    for _ in range(3600):
        outage.failed("no answer")
        clock.advance(1.0)

    assert len(warnings(caplog)) == 6


def test_an_outage_that_is_told_later_has_its_errors_trace(caplog: pytest.LogCaptureFixture) -> None:
    """Who waits for something in another thread tells of its error, and raises none; not "NoneType: None"."""
    outage = Outage(logging.getLogger("sinksdk.test"), "the disk")
    error = ConnectException("no answer")
    outage.failed("the disk is away: %s", error)
    Outage(logging.getLogger("sinksdk.test"), "the disk").failed("the disk is away")

    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [error, None]


def test_what_fails_once_in_a_while_is_no_outage(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    """One that is to be told after a second: neither that it failed nor that it works again."""
    outage = Outage(logging.getLogger("sinksdk.test"), "the store", after=1.0, clock=clock.now)
    for _ in range(5):
        outage.failed("no answer")
        clock.advance(0.5)
        outage.worked()

    assert warnings(caplog) == []


def test_an_outage_of_the_store_is_told_by_the_store_alone(caplog: pytest.LogCaptureFixture) -> None:
    """Of everything that needs it, and of every connector, a line would be the same line."""
    outage = Outage(logging.getLogger("sinksdk.test"), "the status")
    outage.failed("the status cannot be written: %s", StoreUnavailable("no answer"))
    outage.worked()

    assert warnings(caplog) == []


def logged(code: str) -> str:
    """What a process that runs this code writes to stderr."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stderr


SCENE = """
import logging, threading
from sinksdk.support.logs import LogSettings, configure_logging, logging_about, same_subject
configure_logging({settings})
log = logging.getLogger("sinksdk.x")
log.info("a detail")
with logging_about(connector="archive"):
    log.info("started")
    with logging_about(task=3, generation=7):
        try:
            1 / 0
        except ZeroDivisionError:
            log.warning("the group %s is in use", "g", exc_info=True)
        thread = threading.Thread(target=same_subject(lambda: log.warning("from its thread")))
        thread.start()
        thread.join()
"""


@pytest.mark.parametrize("verbose", [True, False])
def test_warnings_are_seen_without_asking_for_them(*, verbose: bool) -> None:
    """Each is something an operator must know; details and stack traces come with --verbose."""
    settings = "LogSettings('DEBUG', traces=True)" if verbose else "LogSettings()"
    lines = logged(SCENE.format(settings=settings))

    assert "WARNING [archive|task-3|generation-7] sinksdk.x: the group g is in use" in lines
    assert "WARNING [archive|task-3|generation-7] sinksdk.x: from its thread" in lines
    assert ("a detail" in lines, "Traceback" in lines) == (verbose, verbose)
    assert ("[archive] sinksdk.x: started" in lines) == verbose


def test_what_others_do_wrong_is_a_line_like_any_other() -> None:
    """A thread of an author's that fails, arguments that do not fit: Python writes those past the log's form.

    And past what keeps secrets out of it.
    """
    code = """
import logging, threading
from sinksdk.support.confidential import SECRETS
from sinksdk.support.logs import LogSettings, configure_logging
configure_logging(LogSettings(is_json=True))
SECRETS.add({"hunter2hunter2": "********"})
def fails():
    raise ValueError("refused: hunter2hunter2")
thread = threading.Thread(target=fails, name="his")
thread.start()
thread.join()
logging.getLogger("his").warning("%d records for %s", "many", "hunter2hunter2")
"""
    failed, odd = map(json.loads, logged(code).splitlines())

    assert failed["message"] == "thread his has ended: ValueError: refused: ********"
    assert failed["level"] == "ERROR"
    assert "in fails" in failed["trace"]
    assert odd["message"] == "%d records for %s ('many', '********')"


def test_lines_for_programs_are_one_object_each() -> None:
    """Time, level, logger, message with its cause; connector, task, generation and trace where there are any."""
    lines = [
        json.loads(line)
        for line in logged(SCENE.format(settings="LogSettings('INFO', is_json=True)")).splitlines()
    ]

    detail, started, failed, thread = lines
    assert detail["time"].endswith("Z")
    assert {key: detail[key] for key in ("level", "logger", "message")} == {
        "level": "INFO",
        "logger": "sinksdk.x",
        "message": "a detail",
    }
    assert "connector" not in detail
    assert (started["connector"], started["message"]) == ("archive", "started")
    subject = {"connector": "archive", "task": 3, "generation": 7}
    assert subject.items() <= failed.items()
    assert failed["message"] == "the group g is in use: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" in failed["trace"]
    assert subject.items() <= thread.items()


@pytest.mark.parametrize("client", ["archiver", "store"])
def test_a_full_connection_pool_is_no_warning(client: str) -> None:
    """Regression: 30 connectors that started together wrote 63 of them; other warnings of urllib3 stay.

    Also in a program that configures logging itself, before it starts a connector.
    """
    created = {
        "archiver": """
from sinksdk.connectors.s3_archiver.s3.boto_client import connect
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
required = {"name": "a", "connector.class": "s3-archiver", "topics": "t", "flush.size": "1"}
connect(S3ArchiverConfig.parse({**required, "s3.bucket.name": "archive", "s3.region": "eu-central-1"}))
""",
        "store": """
import os
from sinksdk.store import s3
from sinksdk.store.addresses import S3Address
s3._client(S3Address("b", "", region="eu-central-1"), os.getpid())
""",
    }
    script = f"""
import logging
logging.basicConfig()
{created[client]}
pool = logging.getLogger("urllib3.connectionpool")
pool.warning("Connection pool is full, discarding connection: %s. Connection pool size: %s", "s3", 10)
pool.warning("Failed to parse headers")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "Connection pool" not in done.stderr
    assert "Failed to parse headers" in done.stderr
