"""Signals, and their effect on a driver and on a Spark that is starting."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from sinksdk import ClosingReason, ConnectException
from sinksdk.cli.display import PlainProgress
from sinksdk.cli.run import ShutdownSignals, drive
from sinksdk.launch.deployment import PreparedSink
from sinksdk.launch.prepare import DeploymentOptions, prepare
from sinksdk.launch.spark import LauncherOnDemand, SparkOnDemand
from sinksdk.launch.topics import TopicDirectory
from sinksdk.spark.conf import store_conf
from sinksdk.spark.options import SparkOptions
from sinksdk.store import absolute_store_url
from sinksdk.store.records import GenerationPlan
from sinksdk.support.logs import LogSettings
from tests.cli.support import Here
from tests.helpers.modules import changed

PLAN = GenerationPlan(generation=1, config_version=1, tasks=(), committed=())


class FakeConnector:
    """Runs until it is closed, then raises the given failure."""

    def __init__(self, error: Exception | None = None) -> None:
        self.reasons: list[ClosingReason] = []
        self._error = error

    def wait(self, timeout: float | None = None) -> bool:
        if not self.reasons:
            os.kill(os.getpid(), signal.SIGTERM)
            return False
        if self._error:
            raise self._error
        return True

    def close(self, reason: ClosingReason = ClosingReason.SHUTDOWN) -> None:
        self.reasons.append(reason)


@pytest.fixture
def lines() -> list[str]:
    return []


@pytest.fixture
def progress(lines: list[str]) -> PlainProgress:
    return PlainProgress(lines.append)


def test_the_first_signal_closes_the_connector_gracefully(progress: PlainProgress, lines: list[str]) -> None:
    progress.planned(PLAN)
    lines.clear()
    connector = FakeConnector()
    with ShutdownSignals() as signals:
        drive(connector, signals, progress)

    assert connector.reasons == [ClosingReason.SHUTDOWN]
    assert progress.snapshot().state == "stopped"
    assert lines[0].startswith("SIGTERM: closing, partial batches are flushed")


def test_wait_raises_the_connectors_failure(progress: PlainProgress) -> None:
    connector = FakeConnector(ConnectException("it failed while closing"))
    with ShutdownSignals() as signals, pytest.raises(ConnectException, match="failed while closing"):
        drive(connector, signals, progress)

    assert progress.snapshot().state == "failed"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_second_signal_exits_at_once_with_128_plus_its_number(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, code: int
) -> None:
    codes: list[int] = []
    monkeypatch.setattr("sinksdk.cli.run.os", changed(os, _exit=codes.append, write=lambda *_: 0))
    with ShutdownSignals() as signals:
        os.kill(os.getpid(), signal.SIGINT)
        assert signals.received is signal.SIGINT
        assert not codes
        os.kill(os.getpid(), number)

    assert codes == [code]


def test_signal_handlers_are_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with ShutdownSignals():
        assert signal.getsignal(signal.SIGTERM) != before[1]

    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def on_demand(here: Here, is_stopping: Callable[[], bool], *conf: str) -> LauncherOnDemand:
    topics = TopicDirectory(here.topic())
    options = DeploymentOptions(topics, "sqlite:///store.db", SparkOptions("local[1]", conf))
    deployment, ready = prepare(here.config(), options, lambda _: None)
    spark = SparkOnDemand(
        deployment, "x", python_path=(), logs=LogSettings(), is_stopping=is_stopping, report=lambda _: None
    )
    assert isinstance(ready, PreparedSink)
    return spark.launcher(ready)


def no_java(*_: object, **__: object) -> None:
    message = "java is not on the PATH"
    raise ConnectException(message)


def test_nothing_is_launched_after_a_close_request(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinksdk.spark.context.start_spark", no_java)

    running = on_demand(here, lambda: True).launch(PLAN)

    assert running.wait(0)
    assert list(running.results()) == []


def test_a_spark_that_cannot_start_fails_the_run(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sinksdk.spark.context.start_spark", no_java)

    with pytest.raises(ConnectException, match="java is not on the PATH"):
        on_demand(here, lambda: False).launch(PLAN)


def test_a_spark_killed_by_the_closing_signal_is_no_failure(
    here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A signal to the process group may reach a JVM that does not ignore it yet.
    stopping: list[bool] = []

    def start_spark(*_: object, **__: object) -> None:
        stopping.append(True)
        no_java()

    monkeypatch.setattr("sinksdk.spark.context.start_spark", start_spark)

    assert list(on_demand(here, lambda: bool(stopping)).launch(PLAN).results()) == []


def test_settings_of_spark_reach_the_session(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []

    def start_spark(*_: object, extra_conf: object, only_schedules: bool) -> None:
        assert only_schedules
        seen.append(extra_conf)
        no_java()

    monkeypatch.setattr("sinksdk.spark.context.start_spark", start_spark)

    with pytest.raises(ConnectException):
        on_demand(here, lambda: False, "spark.x=1", "spark.y=a=b", "spark.x=2").launch(PLAN)

    assert seen == [{"spark.x": "2", "spark.y": "a=b", **store_conf("sqlite:///store.db")}]


def test_the_store_url_is_absolute_for_executors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Executors have other working directories; references to passwords stay unresolved.
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORE", "postgresql://user:secret@host/db")

    assert absolute_store_url("sqlite:///a.db") == f"sqlite:///{tmp_path / 'a.db'}"
    assert absolute_store_url(f"sqlite:///{tmp_path}/a.db") == f"sqlite:///{tmp_path / 'a.db'}"
    assert absolute_store_url("${env:STORE}") == "${env:STORE}"
