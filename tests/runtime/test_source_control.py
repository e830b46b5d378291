from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sinksdk import ClosingReason
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store.records import ConnectorRecord
from sinksdk.topics.memory import MemoryTopics
from tests.helpers.memory_store import MemoryStore
from tests.helpers.memory_target import MemoryTarget
from tests.runtime.running_sources import (
    Counting,
    CountingConfig,
    CountingTask,
    InThreads,
    counted,
    eventually,
)

pytestmark = pytest.mark.usefixtures("at_once")

RAW = {
    "name": "c",
    "connector.class": "tests.runtime.running_sources:Counting",
    "tasks.max": "5",
    "closing.poll.ms": "10",
}


class Life:
    def __init__(self) -> None:
        CountingTask.started, CountingTask.stops = [], []
        self.store, self.topics = MemoryStore(), MemoryTopics()
        self.herder = Herder(self.store)
        self.connectors: list[Counting] = []
        self.target = MemoryTarget(self.topics)
        self.launcher = InThreads(self.store, self.target)
        self.signal = ClosingSignal()
        environment = Environment(self.store, signal=self.signal)
        worker = WorkerConnector(environment, "c", self.driver, Openers(self.to_delete), stays=True)
        self.thread = threading.Thread(target=worker.run, daemon=True)

    def connector(self) -> Counting:
        self.connectors.append(Counting())
        return self.connectors[-1]

    def to_delete(self, record: ConnectorRecord) -> tuple[Counting, CountingConfig]:
        return self.connector(), CountingConfig.parse(record.config)

    def driver(self, environment: Environment) -> SourceDriver:
        record = environment.record
        assert record is not None
        return SourceDriver(
            environment,
            connector=self.connector(),
            config=CountingConfig.parse(record.config),
            raw=record.config,
            target=self.target,
            launcher=self.launcher,
        )

    def begin(self) -> None:
        self.herder.create("c", RAW)
        self.thread.start()
        self.await_tasks(2)

    def await_tasks(self, started: int) -> None:
        eventually(lambda: len(CountingTask.started) == started)

    def expect_each_once(self) -> None:
        values = [record.value or b"" for record in self.topics.records("numbers")]
        for share in "ab":
            assert (found := counted(values, share)) == list(range(len(found)))


@pytest.fixture
def life() -> Iterator[Life]:
    made = Life()
    yield made
    made.signal.request(ClosingReason.SHUTDOWN)
    made.thread.join(20)
    assert not made.thread.is_alive()


def test_a_source_can_be_paused_and_resumed(life: Life) -> None:
    life.begin()
    life.herder.pause("c")
    eventually(lambda: life.herder.info("c").state == "PAUSED")
    assert sorted(CountingTask.stops) == ["a", "b"]
    eventually(lambda: life.connectors[0].life == ["start", "stop(False)"])
    assert [task.state for task in life.herder.info("c").tasks] == ["PAUSED", "PAUSED"]
    life.herder.resume("c")
    life.await_tasks(4)
    life.expect_each_once()


def test_a_source_can_be_reconfigured(life: Life) -> None:
    life.begin()
    life.herder.configure("c", {**RAW, "restart.max.attempts": "9"})
    life.await_tasks(4)

    assert [plan.config_version for plan in life.launcher.plans] == [1, 2]
    assert life.connectors[0].life == ["start", "stop(False)"]
    life.expect_each_once()


def test_a_source_can_be_restarted(life: Life) -> None:
    life.begin()
    life.herder.restart("c")
    life.await_tasks(4)

    assert len(life.connectors) == 2
    life.expect_each_once()


def test_a_running_source_can_be_deleted(life: Life) -> None:
    # The tasks end first, then the driver calls stop(True) (KIP-883). The offsets stay, as in Connect.
    life.begin()
    eventually(lambda: len(life.topics.positions["c"]) == 2)
    life.herder.delete("c")
    eventually(lambda: not life.herder.connectors())

    assert sorted(CountingTask.stops) == ["a", "b"]
    assert life.connectors[0].life == ["start", "stop(True)"]
    assert len(life.topics.positions["c"]) == 2


def test_a_stopped_source_can_be_deleted(life: Life) -> None:
    life.begin()
    life.herder.stop("c")
    eventually(lambda: life.herder.info("c").state == "STOPPED")
    life.herder.delete("c")
    eventually(lambda: not life.herder.connectors())

    assert life.connectors[-1].life == ["start", "stop(True)"]


def test_a_failed_source_can_be_reconfigured(life: Life) -> None:
    life.herder.create("c", {**RAW, "restart.max.attempts": "0", "fails": "true"})
    life.thread.start()
    eventually(lambda: life.herder.info("c").state == "FAILED")
    info = life.herder.info("c")
    assert "the source is gone" in (info.trace or "")
    assert "FAILED" in [task.state for task in info.tasks]
    life.herder.configure("c", {**RAW, "fails": "false"})
    eventually(lambda: life.herder.info("c").state == "RUNNING")
    eventually(lambda: life.topics.records("numbers"))
