from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from sinksdk import (
    ClosingReason,
    ConfigException,
    ConnectException,
    ConnectorConfig,
    FencedException,
    RetriableException,
    SinkConnector,
)
from sinksdk.control.deletion import Deletion
from sinksdk.control.herder import Herder
from sinksdk.control.registry import ConnectorNotFoundException
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import Backoff, Waits
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store import StoreUnavailable, committed_offsets, table
from sinksdk.store.keys import status_key, task_count_key
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from sinksdk.store.reports import ConnectorStatus
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime import running_sinks
from tests.runtime.running_sinks import P0, Finished, InProcess, Source, Task

RAW = {**running_sinks.RAW, "tasks.max": "1", "poll.interval.ms": "10", "restart.backoff.ms": "1"}


class Outside:
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.start: Callable[[], None] = lambda: None
        self.stop: Callable[[bool], None] = lambda is_deleted: None


class Connector(SinkConnector):
    task_class = Task

    def __init__(self, outside: Outside) -> None:
        self._outside = outside

    def start(self, config: Any) -> None:
        self._outside.calls.append(f"start {config.tasks_max}")
        self._outside.start()

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self._outside.calls.append(f"stop {is_deleted}")
        self._outside.stop(is_deleted)


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.herder = Herder(self.store)
        self.outside = Outside()
        self.source = Source({P0: 10})
        self.launcher = InProcess(self.store, Task)
        self.signal = ClosingSignal()

    def config(self, record: ConnectorRecord) -> ConnectorConfig:
        return ConnectorConfig.parse(record.config)

    def worker(
        self, *, brings_config: bool = False, stays: bool = True, backoff: float | None = None
    ) -> WorkerConnector:
        clock = SystemWallClock()
        waits = Waits("connector c", clock, Backoff(backoff, clock)) if backoff is not None else None

        def driver(environment: Environment) -> ConnectorDriver:
            raw = environment.record.config if environment.record else RAW
            return ConnectorDriver(
                environment,
                source=self.source,
                connector=Connector(self.outside),
                config=ConnectorConfig.parse(raw),
                raw=raw,
                launcher=self.launcher,
            )

        return WorkerConnector(
            Environment(self.store, signal=self.signal, waits=waits),
            "c",
            driver,
            Openers(lambda record: (Connector(self.outside), self.config(record))),
            brings_config=brings_config,
            stays=stays,
        )

    @contextmanager
    def running(self, **options: Any) -> Iterator[threading.Thread]:
        thread = threading.Thread(target=self._run, args=(self.worker(**options),), daemon=True)
        self.error: BaseException | None = None
        thread.start()
        try:
            yield thread
        finally:
            self.signal.request(ClosingReason.SHUTDOWN)
            thread.join(30)
            assert not thread.is_alive()

    def _run(self, worker: WorkerConnector) -> None:
        try:
            worker.run()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def state(self) -> str:
        row = table.read(self.store, status_key("c"), ConnectorStatus)
        return row.value.state if row else ""

    def status(self) -> ConnectorStatus:
        row = table.read(self.store, status_key("c"), ConnectorStatus)
        return row.value if row else ConnectorStatus()

    def committed(self) -> int:
        found = committed_offsets(self.store, "c").get(P0)
        return found.offset if found else 0


@pytest.fixture
def scene() -> Scene:
    made = Scene()
    made.herder.create("c", RAW)
    return made


def soon(condition: Callable[[], bool], what: str) -> None:
    # Ten seconds are enough on a busy machine; usually the wait takes one second.
    give_up = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < give_up, what
        time.sleep(0.01)


def test_pausing_stops_the_connector_and_resuming_starts_it(scene: Scene) -> None:
    # Records produced during the pause are read afterwards, because pausing deletes nothing.
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.herder.pause("c")
        soon(lambda: scene.state() == "PAUSED", "it was not paused")
        scene.source.ends[P0] = 20
        time.sleep(0.1)
        assert scene.committed() == 10
        assert scene.outside.calls == ["start 1", "stop False"]
        scene.herder.resume("c")
        soon(lambda: scene.committed() == 20, "it did not go on")
        assert scene.state() == "RUNNING"
    assert scene.outside.calls == ["start 1", "stop False"] * 2


def test_offsets_altered_while_stopped_apply_after_a_resume(scene: Scene) -> None:
    # KIP-875: the claim of the herder that altered them does not fence the process that resumes.
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.herder.stop("c")
        soon(lambda: scene.state() == "STOPPED", "it was not stopped")
        scene.herder.alter_offsets("c", {P0: 4})
        scene.herder.resume("c")
        soon(lambda: scene.committed() == 10, "it did not go on")
    starts = [task.ranges[0].start for plan in scene.launcher.plans for task in plan.tasks]
    assert starts == [0, 4]
    assert scene.error is None


def test_a_new_configuration_restarts_the_connector(scene: Scene) -> None:
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.herder.configure("c", {**RAW, "tasks.max": 3})
        soon(lambda: scene.outside.calls[-1] == "start 3", "it was not started anew")
    assert scene.outside.calls == ["start 1", "stop False", "start 3", "stop False"]


def test_a_restart_stops_and_starts_the_connector(scene: Scene) -> None:
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.herder.restart("c")
        soon(lambda: scene.outside.calls.count("start 1") == 2, "it was not restarted")


def test_a_failed_connector_waits_for_its_operator(scene: Scene) -> None:
    def refuse() -> None:
        message = "no bucket"
        raise ConfigException(message)

    scene.outside.start = refuse
    with scene.running() as thread:
        soon(lambda: scene.state() == "FAILED", "it did not fail")
        row = table.read(scene.store, status_key("c"), ConnectorStatus)
        assert row is not None
        assert "ConfigException: no bucket" in (row.value.trace or "")
        assert thread.is_alive()
        scene.outside.start = lambda: None
        scene.herder.restart("c", only_failed=True)
        soon(lambda: scene.committed() == 10, "it was not restarted")
        assert scene.state() == "RUNNING"


def test_a_process_for_one_connector_ends_when_it_fails(scene: Scene) -> None:
    def refuse() -> None:
        message = "no bucket"
        raise ConnectException(message)

    scene.outside.start = refuse
    with scene.running(stays=False, brings_config=True) as thread:
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(scene.error, ConnectException)


def test_a_configuration_of_the_process_becomes_that_of_the_connector(scene: Scene) -> None:
    scene.herder.configure("c", {**RAW, "tasks.max": 7})
    scene.herder.pause("c")
    with scene.running(brings_config=True):
        soon(lambda: scene.committed() == 10, "nothing was read")
        record = scene.herder.connector("c")
    assert (record.config["tasks.max"], record.target_state) == ("1", "RUNNING")


def test_deleting_a_running_connector_calls_stop_with_is_deleted(scene: Scene) -> None:
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        Herder(scene.store).delete("c")
        thread.join(30)
        assert not thread.is_alive()
    assert scene.outside.calls == ["start 1", "stop True"]
    assert scene.store.list("connectors/c/") == [task_count_key("c")]


def test_a_connector_being_deleted_is_not_taken_over_by_another_process(scene: Scene) -> None:
    seen: list[str] = []

    def note_state(_: bool) -> None:
        row = table.read(scene.store, status_key("c"), ConnectorStatus)
        seen.append(row.value.state if row else "")

    scene.outside.stop = note_state
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        Herder(scene.store).delete("c")
        thread.join(30)
    assert seen == ["RUNNING"]


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_deleting_a_stopped_connector_cleans_up(scene: Scene, state: str) -> None:
    # KIP-883 leaves this open, and Connect would skip the call: here an instance is created and started for
    # stop(True).
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        (scene.herder.pause if state == "PAUSED" else scene.herder.stop)("c")
        soon(lambda: scene.state() == state, f"it was not {state}")
        Herder(scene.store).delete("c")
        thread.join(30)
        assert not thread.is_alive()
    assert scene.outside.calls == ["start 1", "stop False", "start 1", "stop True"]
    assert scene.herder.connectors() == []


def test_deleting_a_failed_connector_cleans_up(scene: Scene) -> None:
    # start raised, but what it created before must be removed nevertheless.

    def refuse() -> None:
        message = "half-way"
        raise ConnectException(message)

    scene.outside.start = refuse
    with scene.running() as thread:
        soon(lambda: scene.state() == "FAILED", "it did not fail")
        Herder(scene.store).delete("c")
        thread.join(30)
        assert not thread.is_alive()
    assert scene.outside.calls[-1] == "stop True"
    assert scene.outside.calls.count("stop True") == 1


def test_a_crashed_deletion_is_finished_before_a_start(scene: Scene) -> None:
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
    scene.outside.calls.clear()
    scene.signal = ClosingSignal()
    Herder(scene.store).delete("c")
    scene.worker().run()

    assert scene.outside.calls == ["start 1", "stop True"]
    assert scene.store.list("connectors/c/") == [task_count_key("c")]


def test_a_connector_created_again_is_not_stopped_as_deleted(scene: Scene) -> None:
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        row = scene.store._read("connectors/c/config")
        assert row is not None
        scene.store.delete("connectors/c/config", row.version)
        scene.herder.create("c", RAW)
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(scene.error, FencedException)
    assert scene.outside.calls == ["start 1", "stop False"]
    assert scene.herder.connectors() == ["c"]


@pytest.mark.parametrize("behaviour", ["hangs", "raises"])
def test_a_connector_whose_stop_raises_is_deleted(
    scene: Scene, behaviour: str, caplog: pytest.LogCaptureFixture
) -> None:
    never = threading.Event()

    def stop(is_deleted: bool) -> None:
        if behaviour == "raises":
            message = "the queue says no"
            raise ConnectException(message)
        never.wait(90)

    scene.outside.stop = stop
    scene.herder.configure("c", {**RAW, "connector.shutdown.graceful.timeout.ms": "100"})
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        Herder(scene.store).delete("c")
        thread.join(30)
        assert not thread.is_alive()
    never.set()
    said = {"hangs": "has not returned for 0.1 s", "raises": "the queue says no"}[behaviour]
    assert said in caplog.text
    assert scene.herder.connectors() == []


@pytest.mark.slow
def test_a_connector_with_an_old_stop_signature_works(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(connector: Connector) -> None:
        connector._outside.calls.append("stop")

    monkeypatch.setattr(Connector, "stop", stop)
    with scene.running() as thread:
        soon(lambda: scene.committed() == 10, "nothing was read")
        for wish, state in ((scene.herder.pause, "PAUSED"), (scene.herder.stop, "STOPPED")):
            wish("c")
            soon(lambda state=state: scene.state() == state, f"it was not {state}")  # type: ignore[misc]  # of this round
            scene.herder.resume("c")
            soon(lambda: scene.state() == "RUNNING", "it did not go on")
        scene.herder.configure("c", {**RAW, "tasks.max": 3})
        soon(lambda: scene.outside.calls[-1] == "start 3", "it was not started anew")
        scene.herder.restart("c")
        soon(lambda: scene.outside.calls.count("start 3") == 2, "it was not restarted")
        Herder(scene.store).delete("c")
        thread.join(30)
        assert not thread.is_alive()
    assert scene.error is None
    assert scene.outside.calls == [*(["start 1", "stop"] * 3), *(["start 3", "stop"] * 2)]


def test_a_missing_connector_is_not_run(scene: Scene) -> None:
    Herder(scene.store).delete("c")
    scene.worker().run()

    with pytest.raises(ConnectorNotFoundException):
        scene.worker().run()


def test_a_flush_commits_waiting_records(scene: Scene) -> None:
    scene.herder.configure("c", {**RAW})
    with scene.running():
        soon(lambda: scene.committed() == 10, "nothing was read")
        scene.herder.flush("c")
        scene.herder.rebalance("c")
        scene.source.ends[P0] = 15
        soon(lambda: scene.committed() == 15, "it did not go on")
    assert scene.error is None


@pytest.mark.parametrize("wish", ["pause", "delete"])
def test_a_connector_that_hangs_in_start_can_be_controlled(
    scene: Scene, wish: str, caplog: pytest.LogCaptureFixture
) -> None:
    never = threading.Event()
    scene.outside.start = lambda: (never.wait(90), None)[1]
    scene.herder.configure("c", {**RAW, "connector.shutdown.graceful.timeout.ms": "100"})
    with scene.running() as thread:
        soon(lambda: bool(scene.outside.calls), "it was not started")
        if wish == "pause":
            scene.herder.pause("c")
            soon(lambda: scene.state() == "PAUSED", "it was not paused")
        else:
            Herder(scene.store).delete("c")
            thread.join(30)
            assert not thread.is_alive()
            assert scene.outside.calls[-1] == "stop True"
    never.set()
    assert "start has not returned for" in caplog.text
    assert "never.wait(90)" in caplog.text


def test_a_start_that_never_returns_fails_the_connector(scene: Scene) -> None:
    never = threading.Event()
    scene.outside.start = lambda: (never.wait(90), None)[1]
    scene.herder.configure("c", {**RAW, "connector.start.timeout.ms": "100"})
    with scene.running():
        soon(lambda: scene.state() == "FAILED", "it did not fail")
        row = table.read(scene.store, status_key("c"), ConnectorStatus)
    never.set()
    assert row is not None
    assert "never.wait(90)" in (row.value.trace or "")


def test_a_retriable_error_of_start_is_retried(scene: Scene) -> None:
    failures = iter([True, False])
    states: list[str] = []

    def start() -> None:
        states.append(scene.state())
        if next(failures, False):
            message = "the bucket is away"
            raise RetriableException(message)

    scene.outside.start = start
    with scene.running():
        soon(lambda: scene.state() == "RESTARTING", "it does not wait for its restart")
        soon(lambda: scene.committed() == 10, "it was not started again")
    assert states == ["", "RESTARTING"]


@pytest.mark.slow
def test_an_outage_of_the_store_does_not_end_a_connector(scene: Scene) -> None:
    # A process that keeps running retries until the store responds.
    answer, reads = scene.store._read, []

    def refuse(key: str) -> Any:
        reads.append(key)
        message = "the store does not answer"
        raise StoreUnavailable(message)

    scene.store._read = refuse  # type: ignore[method-assign]  # an outage
    with scene.running() as thread:
        soon(lambda: len(reads) >= 2, "it did not look again")
        assert thread.is_alive()
        scene.store._read = answer  # type: ignore[method-assign]  # its end
        soon(lambda: scene.committed() == 10, "it did not go on")


def test_a_connector_deleted_during_its_start_is_not_run(scene: Scene) -> None:
    # Regression: a deletion that finished just before the driver's claim left a plan under the deleted name.
    scene.outside.start = lambda: remove_by_hand(scene)
    with scene.running() as thread:
        thread.join(30)
        assert not thread.is_alive()
    assert isinstance(scene.error, FencedException)
    assert scene.store.list("connectors/c/") == [task_count_key("c")]
    assert scene.launcher.plans == []


def remove_by_hand(scene: Scene) -> None:
    # ``sinksdk delete`` does this when no driver sends heartbeats.
    Herder(scene.store).delete("c")
    Deletion(scene.store, "c", Herder(scene.store).connector("c")).remove()


def away(scene: Scene, attempts: int) -> list[int]:
    begun: list[int] = []

    def start() -> None:
        begun.append(len(begun))
        if len(begun) <= attempts:
            message = "the bucket is away"
            raise RetriableException(message)

    scene.outside.start = start
    return begun


def test_a_waiting_connector_shows_the_reason(scene: Scene) -> None:
    away(scene, 10**6)
    seen: list[tuple[Waiting, float]] = []

    def is_shown() -> bool:
        seen.extend((waiting, time.time()) for waiting in [scene.status().waiting] if waiting is not None)
        return bool(seen)

    with scene.running(backoff=0.01):
        soon(is_shown, "it does not wait")
        scene.outside.start = lambda: None
        soon(lambda: scene.committed() == 10, "it was not started again")
        soon(lambda: scene.status().waiting is None, "it still waits")
    waiting, at = seen[0]
    assert waiting.reason == "the bucket is away"
    assert waiting.attempts >= 1
    assert waiting.since <= waiting.next_attempt <= at + 0.01 * 2**waiting.attempts


def test_a_process_for_one_connector_waits_with_its_own_configuration(scene: Scene) -> None:
    # `sinksdk run` while S3 is unavailable resumes by itself, with the configuration of its own file.
    scene.herder.configure("c", {**RAW, "tasks.max": "7"})
    begun = away(scene, 2)
    with scene.running(brings_config=True, stays=False, backoff=0.01):
        soon(lambda: scene.committed() == 10, "it was not started again")
    assert len(begun) == 3
    assert scene.outside.calls[:1] == ["start 1"]
    assert scene.herder.connector("c").config["tasks.max"] == "1"


def test_a_waiting_process_does_not_write_the_status_of_a_running_driver(scene: Scene) -> None:
    # The waiting process has not taken over, so the status is still that of the running driver.
    away(scene, 10**6)
    status = StatusKeeper(scene.store, "c", "elsewhere:1#1", SystemWallClock())
    status.become("RUNNING")
    with scene.running(brings_config=True, stays=False, backoff=0.01):
        soon(lambda: len(scene.outside.calls) >= 6, "it does not try again")
        assert (scene.status().driver, scene.status().waiting) == ("elsewhere:1#1", None)


def test_an_outage_at_the_start_is_logged_in_two_lines(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    away(scene, 3)
    with scene.running(backoff=0.01):
        soon(lambda: scene.committed() == 10, "it was not started again")
    first, last = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert first.startswith("connector c waits for an unavailable system, retrying in 0.0 s: the bucket")
    assert last.startswith("connector c: the unavailable system works again after")


class Unreachable(InProcess):
    is_away = True

    def launch(self, plan: GenerationPlan) -> Finished:
        return Lost([]) if self.is_away else super().launch(plan)


class Lost(Finished):
    def results(self) -> list[TaskResult]:
        message = "its tasks cannot work: store s: no answer for 30 s"
        raise RetriableException(message)


def test_an_outage_of_the_store_for_tasks_uses_up_no_restart_attempt(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    # The log has one line for the beginning and one for the end of the outage.
    scene.herder.configure("c", {**RAW, "restart.max.attempts": "0"})
    scene.launcher = launcher = Unreachable(scene.store, Task)
    with scene.running():
        soon(lambda: scene.status().waiting is not None, "it does not wait")
        status = scene.status()
        launcher.is_away = False
        soon(lambda: scene.committed() == 10, "it did not go on")
        soon(lambda: scene.status().waiting is None, "it still waits")
        assert scene.state() == "RUNNING"
    assert status.state == "RUNNING"
    assert status.waiting is not None
    assert status.waiting.reason == "its tasks cannot work: store s: no answer for 30 s"
    first, last = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert first.startswith("connector c waits for an unavailable system, retrying in ")
    assert last.startswith("connector c: the unavailable system works again after")


def test_a_waiting_process_stops_at_once(scene: Scene) -> None:
    # Ctrl-C ends a wait of any length.
    message = "the bucket is away"

    def start() -> None:
        raise RetriableException(message)

    scene.outside.start = start
    with scene.running(backoff=600.0):
        soon(lambda: scene.state() == "RESTARTING", "it does not wait for its restart")
    # Leaving the block has checked that the thread ended.
