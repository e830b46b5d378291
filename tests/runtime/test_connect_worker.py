from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import ConnectorConfig, SinkConnector, committed_offsets
from sinksdk.control.herder import Herder
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.runtime.connect_worker import ConnectWorker
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store.keys import status_key
from sinksdk.store.records import ConnectorRecord
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, InProcess, Source, Task
from tests.runtime.test_worker_connector import RAW, soon


class Connector(SinkConnector):
    task_class = Task

    def __init__(self, hangs: threading.Event | None) -> None:
        self._hangs = hangs

    def start(self, config: Any) -> None:
        if self._hangs is not None:
            self._hangs.wait(20)


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.herder = Herder(self.store)
        self.hanging: dict[str, threading.Event] = {}
        self.cannot_be_made: dict[str, BaseException] = {}
        self.worker = ConnectWorker(self.store, self.make)
        self.left: list[str] | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def make(self, name: str) -> WorkerConnector:
        def connector() -> Connector:
            return Connector(self.hanging.get(name))

        def driver(environment: Environment) -> ConnectorDriver:
            record = environment.record
            assert record is not None
            if name in self.cannot_be_made:
                raise self.cannot_be_made[name]
            return ConnectorDriver(environment, source=Source({P0: 10}), connector=connector(), config=ConnectorConfig.parse(record.config), raw=record.config, launcher=InProcess(self.store, Task, name))  # fmt: skip

        def deleted(record: ConnectorRecord) -> tuple[SinkConnector, ConnectorConfig]:
            return connector(), ConnectorConfig.parse(record.config)

        return WorkerConnector(Environment(self.store), name, driver, Openers(deleted), stays=True)

    def _run(self) -> None:
        self.left = self.worker.run()

    def create(self, *names: str) -> None:
        for name in names:
            graceful = {"task.shutdown.graceful.timeout.ms": "500"}
            self.herder.create(name, {**RAW, **graceful, "name": name})

    def committed(self, name: str) -> int:
        found = committed_offsets(self.store, name).get(P0)
        return found.offset if found else 0


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    monkeypatch.setattr("sinksdk.runtime.connect_worker._CONNECTORS_POLL", 0.1)
    made = Scene()
    made.thread.start()
    yield made
    made.worker.close()
    for event in made.hanging.values():
        event.set()
    made.thread.join(15)
    assert not made.thread.is_alive()


def test_new_connectors_are_started(scene: Scene) -> None:
    scene.create("a", "b")
    soon(lambda: scene.committed("a") == scene.committed("b") == 10, "they were not run")
    scene.create("c")
    soon(lambda: scene.committed("c") == 10, "it was not run")

    assert scene.worker.running == ["a", "b", "c"]


def test_a_hanging_connector_does_not_block_the_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # When the process ends, it abandons the hanging connector and reports it.
    scene.hanging["bad"] = threading.Event()
    scene.create("bad", "good")
    soon(lambda: scene.committed("good") == 10, "it was held up")
    scene.herder.pause("good")
    soon(lambda: scene.herder.info("good").state == "PAUSED", "it was not paused")
    began = time.monotonic()
    monkeypatch.setattr("sinksdk.runtime.connect_worker._GRACE", 0.2)
    scene.worker.close()
    scene.thread.join(10)

    assert scene.left == ["bad"]
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_a_system_exit_of_a_connector_does_not_stop_the_others(scene: Scene, error: BaseException) -> None:
    scene.cannot_be_made["bad"] = error
    scene.create("bad", "good")
    soon(lambda: scene.committed("good") == 10, "it was not run")
    soon(lambda: scene.worker.running == ["good"], "its end was not noticed")
    scene.create("late")
    soon(lambda: scene.committed("late") == 10, "it was not run")


def test_a_connector_with_damaged_records_does_not_block_the_others(
    scene: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    scene.store.put(status_key("a"), {"state": "NONSENSE"}, None)  # Connect has no such state
    scene.create("a", "b")
    soon(lambda: scene.committed("b") == 10, "it was not run")
    time.sleep(1.5)

    assert scene.worker.running == ["b"]
    told = [r for r in caplog.records if "connector a" in r.getMessage() and r.levelname == "WARNING"]
    assert len(told) == 1


def test_a_deleted_connector_is_not_started_again(scene: Scene) -> None:
    scene.create("a")
    soon(lambda: scene.committed("a") == 10, "it was not run")
    scene.herder.delete("a")
    soon(lambda: scene.herder.connectors() == [], "it was not deleted")
    soon(lambda: scene.worker.running == [], "its life did not end")


def test_a_connector_with_a_driver_elsewhere_is_not_started(scene: Scene) -> None:
    # Each driver would fence the other in turn, without end.
    StatusKeeper(scene.store, "a", "elsewhere:7#1", SystemWallClock()).become("RUNNING")
    scene.create("a", "b")
    soon(lambda: scene.committed("b") == 10, "it was not run")

    assert scene.worker.running == ["b"]
    assert scene.committed("a") == 0


def test_a_connector_whose_other_driver_died_is_started_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The newer driver is dead.
    monkeypatch.setattr("sinksdk.runtime.connect_worker._RESTART_DELAY", 0.5)
    scene.create("a")
    soon(lambda: scene.committed("a") == 10, "it was not run")
    scene.herder.stop("a")
    soon(lambda: scene.herder.info("a").state == "STOPPED", "it was not stopped")
    keeper = StatusKeeper(scene.store, "a", "elsewhere:7#1", SystemWallClock())
    keeper.become("RUNNING")

    def is_left() -> bool:
        keeper.save()  # a running driver writes its heartbeat every two seconds
        return scene.worker.running == []

    soon(is_left, "it was not left to the other one")
    scene.herder.resume("a")
    keeper.become("UNASSIGNED")
    soon(lambda: scene.worker.running == ["a"], "it was not taken on again")
