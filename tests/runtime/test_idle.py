"""The requests of an idle driver are counted, because a server runs many such drivers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from sinksdk import ClosingReason, ConnectException, ConnectorConfig, OffsetRange, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.status import read_status
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store import Store
from sinksdk.testing.faults import ManualClock
from tests.helpers.inline import INLINE
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, RAW, Connector, InProcess, Source, Task

MINUTE = 60.0


class Signal(ClosingSignal):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.end = clock.now() + MINUTE
        self.events: list[tuple[float, Callable[[], object]]] = []

    def wait(self, timeout: float) -> bool:
        self.clock.advance(timeout)
        while self.events and self.clock.now() >= self.events[0][0]:
            self.events.pop(0)[1]()
        if self.clock.now() >= self.end:
            self.request(ClosingReason.SHUTDOWN)
        return self.reason is not None


class Looked(Source):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__({P0: 100})
        self.clock = clock
        self.looks: list[float] = []

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        self.looks.append(self.clock.now())
        return super().partitions(subscription)


class Idle:
    def __init__(
        self, store: Store | None = None, connector: Connector | None = None, **settings: object
    ) -> None:
        self.clock = ManualClock()
        self.signal = Signal(self.clock)
        self.store = store or MemoryStore()
        self.source = Looked(self.clock)
        raw = {**RAW, **settings}
        record = Herder(self.store).configure("c", raw)
        self.launcher = InProcess(self.store, Task)
        self.driver = ConnectorDriver(
            Environment(
                self.store,
                clock=self.clock,
                signal=self.signal,
                record=record,
                threads=INLINE,
            ),
            source=self.source,
            connector=connector or Connector(),
            config=ConnectorConfig.parse(raw),
            raw=raw,
            launcher=self.launcher,
        )

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        self.signal.events.append((self.clock.now() + seconds, event))


@pytest.mark.parametrize("seconds", [1, 5])
def test_the_source_is_queried_each_poll_interval(seconds: int) -> None:
    idle = Idle(**{"poll.interval.ms": seconds * 1000})
    idle.driver.run()
    assert len(idle.source.looks) <= MINUTE / seconds + 3
    later = idle.source.looks[3:]
    assert max(b - a for a, b in pairwise(later)) <= seconds


@pytest.mark.parametrize("state", ["PAUSED", "STOPPED"])
def test_a_target_state_is_applied_within_a_second(state: Any) -> None:
    idle = Idle(**{"poll.interval.ms": 60_000})
    idle.at(20.2, lambda: Herder(idle.store).aim("c", state))
    began = idle.clock.now()
    assert idle.driver.run() is not None
    assert idle.clock.now() - began <= 21.2


def test_an_operator_request_is_applied_within_a_second() -> None:
    idle = Idle(**{"poll.interval.ms": 60_000})
    ordered = idle.clock.now() + 20.2
    idle.at(20.2, lambda: Herder(idle.store).flush("c"))
    idle.driver.run()
    assert any(ordered <= look <= ordered + 1 for look in idle.source.looks)


def test_heartbeats_continue_during_long_poll_intervals() -> None:
    # The idle driver polls its source once a minute.
    idle = Idle(**{"poll.interval.ms": 60_000})
    beats = Counter[str]()

    def count() -> None:
        beats[str(idle.store.version("connectors/c/status"))] += 1
        idle.at(1.0, count)

    idle.at(1.0, count)
    idle.driver.run()
    assert max(beats.values()) <= 4


class Hashed(TopicPartition):
    hashes = 0

    def __hash__(self) -> int:
        Hashed.hashes += 1
        return super().__hash__()


def test_polls_of_a_driver_that_catches_up_cost_linear_time() -> None:
    # Regression: with 10,000 partitions each poll of a driver that ends when caught up took seconds.
    costs = []
    for partitions in (50, 500):
        idle = Idle()
        idle.source.ends = {Hashed("t", number): 0 for number in range(partitions)}
        Hashed.hashes = 0
        idle.driver.run(until_caught_up=True)
        costs.append(Hashed.hashes / partitions)
    assert costs[1] < 2 * costs[0]


class Asking(Connector):
    asked = 0

    def task_configs(self, max_tasks: int) -> Any:
        self.asked += 1
        return super().task_configs(max_tasks)


def test_an_idle_sinks_request_for_other_tasks_waits_for_the_next_generation() -> None:
    connector = Asking()
    idle = Idle(connector=connector)

    def request_tasks() -> None:
        connector.context.request_task_reconfiguration()

    def grow() -> None:
        idle.source.ends[P0] = 200

    idle.at(10, request_tasks)
    idle.at(20, grow)
    idle.driver.run()

    assert connector.asked == len(idle.launcher.plans) == 2


def test_an_idle_sinks_error_ends_it() -> None:
    connector = Asking()
    idle = Idle(connector=connector)
    idle.at(10, lambda: connector.context.raise_error(OSError("the bucket is gone")))
    with pytest.raises(
        ConnectException, match="connector c has raised an error: OSError: the bucket is gone"
    ):
        idle.driver.run()

    assert idle.clock.now() < idle.signal.end
    assert read_status(idle.store, "c").state == "FAILED"
