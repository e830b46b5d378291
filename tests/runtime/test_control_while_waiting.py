"""An operator's request is applied within a second while a connector waits for an unavailable system."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import pytest

from sinksdk import ClosingReason, ConnectorConfig, OffsetRange, RetriableException, TopicPartition
from sinksdk.control import registry
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import read_status
from sinksdk.runtime.backoff import Backoff, Waits
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.store import committed_offsets
from sinksdk.store.keys import config_key
from sinksdk.store.records import ConnectorRecord, TargetState
from sinksdk.testing import ManualClock
from sinksdk.topics.base import Partitions
from tests.helpers.inline import INLINE
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, RAW, Connector, InProcess, Source, Task

# The operator's request comes in the middle of a wait of nearly a minute, or of 16 s.
ASKED: Final = 20.2

HEARD: Final = ASKED + 1.2


class Signal(ClosingSignal):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock
        self._events: list[tuple[float, Callable[[], object]]] = []

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        self._events.append((self._clock.now() + seconds, event))

    def wait(self, timeout: float) -> bool:
        self._clock.advance(timeout)
        while self._events and self._clock.now() >= self._events[0][0]:
            self._events.pop(0)[1]()
        return self.reason is not None


class Away:
    is_away = True
    asked = 0

    def __call__(self) -> None:
        self.asked += 1
        if self.asked > 100:
            pytest.fail("it is asked again and again")
        if self.is_away:
            message = "it does not answer"
            raise RetriableException(message)


class AwaySource(Source):
    def __init__(self, away: Callable[[], None]) -> None:
        super().__init__({P0: 10})
        self._away = away

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        self._away()
        return super().partitions(subscription)


class Leaderless(Source):
    def partitions(self, subscription: Any) -> Partitions:
        return Partitions({}, [P0])


class AwayGroup:
    def __init__(self, away: Callable[[], None]) -> None:
        self._away = away

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self._away()
        return {}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        return False


class Bucketless(Connector):
    def __init__(self, away: Callable[[], None]) -> None:
        super().__init__()
        self._away = away

    def start(self, config: Any) -> None:
        self._away()


class Scene:
    def __init__(
        self,
        source: Source,
        connector: Connector | None = None,
        group: AwayGroup | None = None,
        **more: object,
    ) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.began = self.clock.now()
        self.signal = Signal(self.clock)
        self.launcher = InProcess(self.store, Task)
        self._source, self._connector, self._group = source, connector or Connector(), group
        Herder(self.store).configure("c", {**RAW, "poll.interval.ms": "60000", **more})

    @property
    def elapsed(self) -> float:
        return self.clock.now() - self.began

    def driver(self, environment: Environment) -> ConnectorDriver:
        record = environment.record
        assert record is not None
        return ConnectorDriver(
            environment,
            source=self._source,
            connector=self._connector,
            config=ConnectorConfig.parse(record.config),
            raw=record.config,
            launcher=self.launcher,
            group=self._group,
        )

    def environment(self, record: ConnectorRecord | None = None) -> Environment:
        waits = Waits("connector c", self.clock, Backoff(1.0, self.clock, jitter=lambda: 1.0))
        return Environment(
            self.store, self.clock, INLINE, lambda: 1.0, self.signal, waits=waits, record=record
        )

    def run(self) -> None:
        self.signal.at(HEARD + 0.1, lambda: self.signal.request(ClosingReason.SHUTDOWN))
        openers = Openers(lambda record: (self._connector, ConnectorConfig.parse(record.config)))
        WorkerConnector(self.environment(), "c", self.driver, openers, stays=True).run()


def for_the_source() -> Scene:
    return Scene(AwaySource(Away()))


def for_the_first_query() -> Scene:
    return Scene(AwaySource(Away()), **{"auto.offset.reset": "latest"})


def for_a_leader_at_the_first_query() -> Scene:
    return Scene(Leaderless({}), **{"auto.offset.reset": "latest"})


def for_the_group() -> Scene:
    settings = {"offset.source": "group", "offset.mirror": "false"}
    return Scene(Source({P0: 10}), group=AwayGroup(Away()), **settings)


def for_its_bucket() -> Scene:
    return Scene(Source({P0: 10}), Bucketless(Away()))


waiting = pytest.mark.parametrize(
    "scene_of",
    [for_the_source, for_the_first_query, for_a_leader_at_the_first_query, for_the_group, for_its_bucket],
)


@waiting
@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_waiting_connector_can_be_paused_and_stopped(
    scene_of: Callable[[], Scene], state: TargetState
) -> None:
    scene, seen = scene_of(), list[str]()
    for moment in (ASKED - 0.1, HEARD):
        scene.signal.at(moment, lambda: seen.append(read_status(scene.store, "c").state))
        if moment < ASKED:
            scene.signal.at(ASKED, lambda: Herder(scene.store).aim("c", state))
    scene.run()
    before, after = seen
    assert before in ("RUNNING", "RESTARTING")
    assert after == state
    assert (scene.launcher.plans, committed_offsets(scene.store, "c")) == ([], {})


@waiting
def test_a_waiting_connector_can_be_deleted(scene_of: Callable[[], Scene]) -> None:
    scene = scene_of()
    scene.signal.at(ASKED, lambda: Herder(scene.store).delete("c"))
    scene.run()
    assert ASKED <= scene.elapsed <= HEARD
    assert scene._connector.stops[-1]
    assert scene.store.version(config_key("c")) is None


def test_a_rebalance_does_not_end_a_waiting_run_until_caught_up() -> None:
    # Regression: with the source unavailable, "everything" was committed, and nothing was read.
    away = Away()
    scene = Scene(AwaySource(away))
    driver = scene.driver(scene.environment(registry.find(scene.store, "c")))

    def come_back() -> None:
        away.is_away = False

    scene.signal.at(ASKED, driver.rebalance)
    scene.signal.at(HEARD, come_back)
    assert driver.run(until_caught_up=True) is None
    assert scene.elapsed > HEARD
    assert committed_offsets(scene.store, "c")[P0].offset == 10
