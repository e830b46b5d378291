"""A source that does not respond: its lag is unknown; after errors.retry.timeout the connector fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import pytest

from sinksdk import ClosingReason, ConnectorConfig, OffsetRange, RetriableException, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.requests import ClosingSignal
from sinksdk.control.shown import ConnectorInfo
from sinksdk.metrics.prometheus import exposition
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store.records import GenerationPlan
from sinksdk.testing import ManualClock
from sinksdk.topics.base import Partitions
from tests.helpers.inline import INLINE
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, RAW, Connector, Finished, InProcess, Source, Task

TIMEOUT: Final = 120.0
WHY: Final = "broker 1 has not responded"


class Frozen(Source):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__({P0: 10, P1: 10})
        self.clock = clock
        self.is_frozen = self.is_led = False

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        if self.is_frozen:
            self.clock.advance(10.0)
            raise RetriableException(WHY)
        found = super().partitions(subscription)
        return Partitions({P0: found[P0]}, [P1]) if self.is_led else found


class Signal(ClosingSignal):
    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.events: list[tuple[float, Callable[[], object]]] = []

    def wait(self, timeout: float) -> bool:
        self.clock.advance(timeout)
        while self.events and self.clock.now() >= self.events[0][0]:
            self.events.pop(0)[1]()
        return self.reason is not None


class Unlaunchable(InProcess):
    is_away = False

    def launch(self, plan: GenerationPlan) -> Finished:
        if self.is_away:
            raise RetriableException(WHY)
        return super().launch(plan)


class Scene:
    def __init__(self, **settings: object) -> None:
        self.clock, self.store = ManualClock(), MemoryStore()
        self.signal, self.source = Signal(self.clock), Frozen(self.clock)
        self.launcher = Unlaunchable(self.store, Task)
        self.herder = Herder(self.store, clock=self.clock)
        raw = {
            **RAW,
            "poll.interval.ms": "1000",
            "errors.retry.timeout": str(int(TIMEOUT * 1000)),
            **settings,
        }
        self.driver = ConnectorDriver(
            Environment(self.store, self.clock, INLINE, lambda: 1.0, self.signal),
            source=self.source,
            connector=Connector(),
            config=ConnectorConfig.parse(raw),
            raw=raw,
            launcher=self.launcher,
        )
        self.seen: list[ConnectorInfo] = []
        self.failures: list[dict[str, str]] = []

    def at(self, seconds: float, event: Callable[[], object]) -> None:
        self.signal.events.append((self.clock.now() + seconds, event))

    def read_status(self) -> None:
        self.seen.append(self.herder.info("c"))
        self.failures.append(self.herder.overdue())

    def metrics(self) -> list[str]:
        return exposition(self.herder, "")[0].decode().splitlines()

    def freeze(self) -> None:
        self.source.is_frozen = True
        self.source.ends = {P0: 500, P1: 10}

    def wake(self) -> None:
        self.source.is_frozen = False

    def run(self, seconds: float) -> None:
        self.at(seconds, lambda: self.signal.request(ClosingReason.SHUTDOWN))
        self.driver.run()


def test_lag_is_unknown_while_the_source_does_not_respond_and_known_again_after_it() -> None:
    # Regression: the lag was 0 while 1,800 records waited.
    scene = Scene()
    scene.at(5, scene.read_status)
    scene.at(10, scene.freeze)
    scene.at(40, scene.read_status)
    scene.at(60, scene.wake)
    scene.at(75, scene.read_status)
    scene.run(80)

    before, frozen, after = scene.seen
    assert (before.state, before.lag, [p.lag for p in before.partitions]) == ("RUNNING", 0, [0, 0])
    assert (frozen.state, frozen.lag, [p.lag for p in frozen.partitions]) == ("RUNNING", None, [None, None])
    assert frozen.waiting is not None
    assert scene.failures[1] == {}, "not yet"
    assert [p.error for p in frozen.partitions] == [None, None]
    assert after.waiting is None
    assert after.lag is not None


def test_a_source_that_does_not_respond_for_longer_than_the_retry_timeout_is_a_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scene, metrics = Scene(), list[list[str]]()
    scene.at(10, scene.freeze)
    scene.at(10 + TIMEOUT + 30, scene.read_status)
    scene.at(10 + TIMEOUT + 30, lambda: metrics.append(scene.metrics()))
    scene.at(200, scene.wake)
    scene.at(230, scene.read_status)
    scene.at(230, lambda: metrics.append(scene.metrics()))
    with caplog.at_level(logging.ERROR):
        scene.run(240)

    failed, healed = scene.seen
    assert failed.state == "RUNNING", "it needs no operator"
    assert {task.state for task in failed.tasks} == {"RESTARTING"}
    for text in (failed.trace, failed.tasks[0].trace, *(p.error for p in failed.partitions)):
        assert f"longer than {TIMEOUT:g} s (errors.retry.timeout)" in str(text)
        assert WHY in str(text)
    assert failed.failing_count == 2
    assert [p.lag for p in failed.partitions] == [None, None]
    assert scene.failures[0].keys() == {"c"}
    assert any(line.startswith("sinksdk_connector_waiting_since_timestamp_seconds{") for line in metrics[0])
    assert not any(line.startswith("sinksdk_partition_lag{") for line in metrics[0])
    assert failures_of(metrics[0])
    assert all(count > 2 for count in failures_of(metrics[0]))
    assert caplog.text.count("no generation could be planned") == 1

    assert (scene.failures[1], healed.trace, healed.failing_count) == ({}, None, 0)
    assert failures_of(metrics[1]) == [0, 0]
    assert any(line.startswith("sinksdk_partition_lag{") for line in metrics[1])


def failures_of(metrics: list[str]) -> list[float]:
    return [float(line.split()[-1]) for line in metrics if line.startswith("sinksdk_partition_failures{")]


def test_generations_that_cannot_be_launched_are_a_failure_after_the_retry_timeout() -> None:
    # Regression: such generations were planned again without end, and only logged at INFO.
    scene = Scene()

    def leave() -> None:
        scene.launcher.is_away = True
        scene.source.ends = {P0: 500, P1: 10}

    def come_back() -> None:
        scene.launcher.is_away = False

    scene.at(10, leave)
    scene.at(10 + TIMEOUT + 150, scene.read_status)
    scene.at(300, come_back)
    scene.at(400, scene.read_status)
    scene.run(410)

    assert WHY in scene.failures[0]["c"]
    assert scene.seen[0].lag is not None
    assert scene.seen[0].lag > 0, "the source responds: this is known"
    assert scene.failures[1] == {}


def test_a_partition_without_a_leader_has_no_lag_and_fails_after_the_retry_timeout() -> None:
    scene = Scene()

    def lose() -> None:
        scene.source.is_led = True

    scene.at(10, lose)
    scene.at(30, scene.read_status)
    scene.at(10 + TIMEOUT + 30, scene.read_status)
    scene.run(10 + TIMEOUT + 40)

    early, late = scene.seen
    assert [p.lag for p in early.partitions] == [p.lag for p in late.partitions] == [0, None]
    assert early.lag is late.lag is None
    assert [bool(p.error) for p in early.partitions] == [False, False]
    assert [bool(p.error) for p in late.partitions] == [False, True]


def test_a_connector_that_has_never_seen_its_source_has_no_lag() -> None:
    scene = Scene()
    scene.freeze()
    scene.at(30, scene.read_status)
    scene.run(40)

    assert (scene.seen[0].state, scene.seen[0].lag) == ("RUNNING", None)
