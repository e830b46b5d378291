"""Errors that are reported before Spark starts: at once, in one block, with their exit code."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Self

import pytest

from sinksdk import (
    ConfigException,
    ConnectException,
    FencedException,
    MissingSourceTopicException,
    RetriableException,
)
from sinksdk.cli.output import ExitCode, exit_code_of
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.store import StoreUnreadable, open_store, table
from sinksdk.store.keys import status_key
from sinksdk.store.reports import ConnectorStatus
from tests.cli.support import Here
from tests.helpers import ports


@pytest.fixture
def closed_port() -> Iterator[int]:
    with ports.closed_port() as port:
        yield port


def test_exit_codes_have_their_documented_values() -> None:
    # Scripts and supervisors depend on the exit codes.
    assert {code.name: int(code) for code in ExitCode} == {
        "DONE": 0,
        "FAILED": 1,
        "BAD_CONFIG": 2,
        "FENCED": 3,
        "MISSING_TOPIC": 4,
    }


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigException("no"), ExitCode.BAD_CONFIG),
        (StoreUnreadable("no"), ExitCode.BAD_CONFIG),
        (FencedException("no"), ExitCode.FENCED),
        (MissingSourceTopicException(["t"]), ExitCode.MISSING_TOPIC),
        (ConnectException("no"), ExitCode.FAILED),
        (RetriableException("no"), ExitCode.FAILED),
        (ValueError("no"), ExitCode.FAILED),
    ],
)
def test_each_exception_has_its_exit_code(error: Exception, code: ExitCode) -> None:
    assert exit_code_of(error) is code


def test_run_reports_every_problem_at_once_and_creates_nothing(here: Here) -> None:
    config = here.config(out_folder=None, tasks_max="many")

    result = here.sinksdk(
        *("run", config, "--topic-directory", "absent", "--master", "locl"),
        *("--store", "sqlite:///absent/store.db"),
    )

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: 5 problems, nothing was started\n")
    for problem in (
        "'tasks.max': input should be a valid integer",
        "'out.folder' is required and not set",
        f"the topic directory {here.folder / 'absent'} does not exist",
        f"the folder {here.folder / 'absent'} does not exist",
        "the Spark master 'locl' is not supported",
    ):
        assert problem in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(here.folder.glob("*sqlite*"))


def test_a_missing_configuration_file_does_not_hide_other_problems(here: Here) -> None:
    result = here.sinksdk("run", "absent.json", "--topic-directory", "nowhere")

    assert result.exit_code == 2
    assert "error: 2 problems" in result.stderr
    assert "the configuration absent.json cannot be read: No such file or directory" in result.stderr


def test_unknown_keys_are_warned_of_first(here: Here) -> None:
    # The missing key is in the configuration, but misspelt.
    config = here.config(out_folder=None, out_foldr="x", format_class="y")

    result = here.sinksdk("run", config, "--topic-directory", here.topic())

    assert result.exit_code == 2
    first, second, third = result.stderr.splitlines()
    assert first == (
        "warning: 'out.foldr' is not known to this connector and has no effect; did you mean 'out.folder'?"
    )
    assert second == "warning: keys without effect: 'format.class' ('sinksdk validate' gives the reasons)"
    assert third == "error: 'out.folder' is required and not set"


@pytest.mark.parametrize(
    ("store", "problem"),
    [
        ("commits.db", "'commits.db' is not the URL of a store; give one such as sqlite:///FILE"),
        ("sqlite://", "a database in memory ends with its process; use a file"),
        ("sqlite:///topics", "cannot be opened: unable to open database file"),
        ("nonsense://x/y", "cannot be opened: "),
        ("mysql://x/y", "a store is sqlite:///FILE, postgresql://USER@HOST/DATABASE or s3://BUCKET/PREFIX"),
        ("s3://", "must name its bucket: s3://BUCKET/PREFIX"),
        ("s3://bucket?endpont=http://x", "no option 'endpont'; did you mean 'endpoint'?"),
        (
            "postgresql://u:${env:NO_SUCH_VARIABLE}@h/d",
            "the environment variable NO_SUCH_VARIABLE is not set",
        ),
        ("${env:NO_SUCH_VARIABLE}", "the environment variable NO_SUCH_VARIABLE is not set here"),
    ],
)
def test_an_invalid_store_exits_2(here: Here, store: str, problem: str) -> None:
    result = here.sinksdk("run", here.config(), "--topic-directory", here.topic(), "--store", store)

    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert problem in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_file_store_is_refused_for_a_master_that_spans_hosts(here: Here) -> None:
    result = here.sinksdk("run", here.config(), "--topic-directory", here.topic(), "--master", "yarn")

    assert result.exit_code == 2
    assert "runs tasks on other hosts, but the store is a file on this one" in result.stderr


@pytest.mark.parametrize(
    "store",
    ["s3://bucket/state?secret_access_key=${env:KEY}&access_key_id=k", "postgresql://u:${env:KEY}@h/d"],
)
def test_a_shared_store_is_accepted_for_a_master_that_spans_hosts(
    here: Here, monkeypatch: pytest.MonkeyPatch, store: str
) -> None:
    monkeypatch.setenv("KEY", "secret")
    opened = []

    def open_store(url: str, *, create: bool) -> None:
        opened.append((url, create))
        message = "opened"
        raise ConfigException(message)

    monkeypatch.setattr("sinksdk.launch.prepare.open_store", open_store)

    result = here.sinksdk(
        *("run", here.config(), "--topic-directory", here.topic(), "--master", "yarn", "--store", store)
    )

    assert result.stderr == "error: opened\n"
    assert opened == [(store, True)]


class StopsWaiting(logging.Handler):
    """Sends Ctrl-C once the log shows so many failed attempts."""

    def __init__(self, attempts: int, logger: str = "sinksdk.runtime.backoff") -> None:
        super().__init__()
        self._left = attempts
        self._logger = logging.getLogger(logger)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
        self._left -= 1
        if not self._left:
            os.kill(os.getpid(), signal.SIGINT)

    def __enter__(self) -> Self:
        self._logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._logger.removeHandler(self)


def test_an_unreachable_store_is_retried_until_a_signal(
    here: Here, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinksdk.store.sql._OPENING", 0.2)
    monkeypatch.setattr("sinksdk.store.base._LOGGED_AFTER", 0.0)
    store = f"postgresql://127.0.0.1:{closed_port}/db"

    with StopsWaiting(1, "sinksdk.store.base") as waiting:
        result = here.sinksdk("run", here.config(), "--topic-directory", here.topic(), "--store", store)

    assert result.exit_code == 0
    assert result.stdout == "stopped before Spark was started\n"
    (message,) = waiting.messages
    assert f"{closed_port}/db does not respond, retrying: opening it failed once: " in message


def test_a_missing_topic_exits_4(here: Here) -> None:
    config = here.config(topics="flights,trains,ships", missing_topic_grace_ms=200)

    result = here.sinksdk("run", config, "--topic-directory", here.topic())

    assert result.exit_code == 4
    first, last = result.stderr.splitlines()
    gone = f"the topic directory {here.folder / 'topics'} has no topic 'ships', 'trains' (it has: 'flights')"
    assert first.startswith(f"warning: {gone}")
    assert first.endswith("(retrying for 0.2 s, see missing.topic.grace.ms)")
    assert last.startswith(f"error: connector lines: {gone}: create the folder topic=<topic>, or remove it")


def test_a_config_exception_of_start_exits_2_before_spark(here: Here) -> None:
    config = here.config(out_folder="absent")

    result = here.sinksdk("run", config, "--topic-directory", here.topic())

    assert result.exit_code == 2
    assert result.stderr == "error: 'out.folder': there is no folder absent\n"


def test_verbose_adds_the_stack_trace(here: Here) -> None:
    config = here.config(out_folder="absent")

    result = here.sinksdk("run", config, "--topic-directory", here.topic(), "--verbose")

    assert result.exit_code == 2
    assert "linesink.py" in result.stderr
    assert "Traceback" in result.stderr


@pytest.mark.slow
def test_an_unreachable_s3_endpoint_is_retried_until_a_signal(
    here: Here, closed_port: int, caplog: pytest.LogCaptureFixture
) -> None:
    config = here.config(
        connector_class="s3-archiver",
        out_folder=None,
        flush_size=10,
        s3_bucket_name="archive",
        store_url=f"http://127.0.0.1:{closed_port}",
        aws_access_key_id="x",
        aws_secret_access_key="y",
        s3_part_retries=0,
    )

    caplog.set_level(logging.DEBUG, "sinksdk.runtime.backoff")
    with StopsWaiting(3):
        result = here.sinksdk("run", config, "--topic-directory", here.topic())

    refused = f"no S3 endpoint responds at http://127.0.0.1:{closed_port}"
    assert (result.exit_code, result.stderr) == (0, "")
    (message,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert refused in message
    with closing(open_store(f"sqlite:///{here.folder}/sinksdk.sqlite")) as store:
        row = table.read(store, status_key("lines"), ConnectorStatus)
    assert row is not None
    assert row.value.state == "RESTARTING"
    assert row.value.waiting is not None
    assert row.value.waiting.reason.startswith(refused)
    assert row.value.waiting.attempts >= 2


@pytest.mark.parametrize(
    ("error", "code"), [(FencedException("a newer driver"), 3), (ValueError("surprise"), 1)]
)
def test_the_drivers_failure_sets_the_exit_code(
    here: Here, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int
) -> None:
    def run(_: ConnectorDriver, *, until_caught_up: bool) -> None:
        raise error

    monkeypatch.setattr(ConnectorDriver, "run", run)

    result = here.sinksdk("run", here.config(), "--topic-directory", here.topic())

    assert result.exit_code == code
    assert result.stderr == (
        "error: a newer driver\n"
        if code == 3
        else "error: ValueError: surprise\n(--verbose shows stack traces)\n"
    )


def test_a_run_without_topics_ends_with_a_store_in_the_working_directory(here: Here) -> None:
    config = here.config(topics=None, topics_regex="trains.*")

    result = here.sinksdk("run", config, "--topic-directory", here.topic(), "--until-caught-up")

    assert result.exit_code == 0
    store = here.folder / "sinksdk.sqlite"
    assert result.stdout.splitlines()[0] == f"lines: store sqlite:///{store}, Spark on local[*]"
    assert result.stdout.splitlines()[-1].startswith("caught up: 0 records committed, ")
    assert store.exists()


def test_an_invalid_command_line_exits_2(here: Here, tmp_path: Path) -> None:
    assert here.sinksdk("run").exit_code == 2
    assert here.sinksdk("run", here.config()).exit_code == 2
    assert here.sinksdk("runn").exit_code == 2


def test_invalid_spark_settings_are_reported_before_the_start(here: Here) -> None:
    conf = [
        "spark.speculation",
        "speculation=true",
        "spark.master=local",
    ]

    result = here.sinksdk(
        *("run", here.config(), "--topic-directory", here.topic()),
        *(text for setting in conf for text in ("--conf", setting)),
    )

    assert result.exit_code == 2
    assert result.stderr.startswith("error: 3 problems, nothing was started\n")
    for problem in (
        "the Spark setting 'spark.speculation' has no value: write KEY=VALUE",
        "'speculation' is not a Spark setting",
        "the Spark setting 'spark.master' cannot be used",
    ):
        assert problem in result.stderr


KNOWN = {"config": {}, "incarnation": "i"}
NEWER = "which this version of sinksdk does not know; a newer version has written it"


@pytest.mark.parametrize(
    ("key", "value", "version", "message"),
    [
        ("store", {}, 99, "has a format that this version of sinksdk does not know; upgrade sinksdk"),
        ("connectors/lines/config", KNOWN, 99, "upgrade sinksdk"),
        ("connectors/lines/tasks-count", {}, 99, "upgrade sinksdk"),
        ("connectors/lines/config", {**KNOWN, "target_state": "DRAINING"}, 1, f"'DRAINING' as 'target_state', {NEWER}"),
        ("connectors/lines/config", {**KNOWN, "kind": "stream"}, 1, f"'stream' as 'kind', {NEWER}"),
        ("connectors/lines/config", {}, 1, "is damaged (config: Field required"),
        ("connectors/lines/tasks-count", {"claimed": "x"}, 1, "is damaged (claimed: "),
        ("connectors/lines/tasks-count", {"claimed": 3, "planned": 3, "tasks": 1}, 1, "lost the plan of generation 3"),
    ],
)  # fmt: skip
def test_an_unreadable_store_exits_2(
    here: Here, key: str, value: dict[str, Any], version: int, message: str
) -> None:
    # A supervisor would restart the command endlessly on exit code 1, although only an operator can help: a
    # newer sinksdk has written the store, or the store is damaged.
    store = open_store("sqlite:///commits.sqlite", create=True)
    found = store.get(key)
    store.put(key, value, found.version if found else None, version=version)
    store.close()

    result = here.sinksdk(
        *("run", here.config(), "--topic-directory", here.topic(), "--store", "sqlite:///commits.sqlite")
    )
    assert result.exit_code == 2
    assert message in result.stderr
