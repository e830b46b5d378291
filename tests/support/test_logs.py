"""Log lines, and how often an outage is logged."""

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


def test_outage_is_logged_at_begin_and_end(caplog: pytest.LogCaptureFixture, clock: ManualClock) -> None:
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


def test_outage_is_logged_again_every_ten_minutes(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    outage = Outage(logging.getLogger("sinksdk.test"), "the disk", clock=clock.now)
    for _ in range(3600):
        outage.failed("no answer")
        clock.advance(1.0)

    assert len(warnings(caplog)) == 6


def test_outage_of_another_thread_is_logged_with_its_error(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("sinksdk.test"), "the disk")
    error = ConnectException("no answer")
    outage.failed("the disk is away: %s", error)
    Outage(logging.getLogger("sinksdk.test"), "the disk").failed("the disk is away")

    assert [record.exc_info and record.exc_info[1] for record in caplog.records] == [error, None]


def test_outage_shorter_than_after_is_not_logged(
    caplog: pytest.LogCaptureFixture, clock: ManualClock
) -> None:
    outage = Outage(logging.getLogger("sinksdk.test"), "the store", after=1.0, clock=clock.now)
    for _ in range(5):
        outage.failed("no answer")
        clock.advance(0.5)
        outage.worked()

    assert warnings(caplog) == []


def test_outage_logged_by_the_store_is_not_logged_again(caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage(logging.getLogger("sinksdk.test"), "the status")
    outage.failed("the status cannot be written: %s", StoreUnavailable("no answer"))
    outage.worked()

    assert warnings(caplog) == []


def logged(code: str) -> str:
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
def test_warnings_are_logged_by_default(*, verbose: bool) -> None:
    settings = "LogSettings('DEBUG', traces=True)" if verbose else "LogSettings()"
    lines = logged(SCENE.format(settings=settings))

    assert "WARNING [archive|task-3|generation-7] sinksdk.x: the group g is in use" in lines
    assert "WARNING [archive|task-3|generation-7] sinksdk.x: from its thread" in lines
    assert ("a detail" in lines, "Traceback" in lines) == (verbose, verbose)
    assert ("[archive] sinksdk.x: started" in lines) == verbose


def test_failed_threads_and_bad_log_arguments_are_log_lines() -> None:
    # Python itself would print such errors in another form, with their secrets.
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

    assert failed["message"] == "thread his failed: ValueError: refused: ********"
    assert failed["level"] == "ERROR"
    assert "in fails" in failed["trace"]
    assert odd["message"] == "%d records for %s ('many', '********')"


def test_json_log_lines_are_one_object_each() -> None:
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
def test_full_connection_pool_is_not_logged(client: str) -> None:
    # Regression: 30 connectors that started together wrote 63 of these lines.
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
