from __future__ import annotations

import logging
import time
from typing import Any

import pytest

from sinksdk import SinkTask
from sinksdk.control.status import StatusKeeper, read_status
from sinksdk.engine.clock import SystemWallClock
from sinksdk.store import committed_offsets
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import ConnectorStatus
from sinksdk.topics.base import Partitions
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, Finished, InProcess, Source, Task, driver


class Led(Source):
    is_led = False

    def partitions(self, subscription: Any) -> Partitions:
        found = super().partitions(subscription)
        return Partitions(found) if self.is_led else Partitions({P0: found[P0]}, [P1])


class Elects(InProcess):
    source: Led

    def __init__(self, store: MemoryStore, task_class: type[SinkTask]) -> None:
        super().__init__(store, task_class)
        self.told: list[ConnectorStatus] = []

    def launch(self, plan: GenerationPlan) -> Finished:
        finished = super().launch(plan)
        self.told.append(read_status(self.store, self.connector))
        self.source.is_led = True
        return finished


@pytest.mark.parametrize("reset", ["earliest", "latest"])
def test_a_partition_without_a_leader_is_read_once_it_has_one(
    caplog: pytest.LogCaptureFixture, reset: str
) -> None:
    # The partition was read before: it does not count as replaced, and catching up waits for it.
    source = Led({P0: 10, P1: 5})
    source.is_led = True
    made, running, _ = driver(source, **{"auto.offset.reset": reset})
    made.run(until_caught_up=True)
    source.is_led, source.ends = False, {P0: 20, P1: 50}
    made, _, _ = driver(source, store=running.store)
    launcher = Elects(running.store, Task)
    launcher.source = source
    made.launcher = launcher
    with caplog.at_level(logging.WARNING):
        made.run(until_caught_up=True)

    assert [{r.partition for t in plan.tasks for r in t.ranges} for plan in launcher.plans] == [{0}, {1}]
    assert {p: o.offset for p, o in committed_offsets(running.store, "c").items()} == {P0: 20, P1: 50}
    assert "t-1 has no leader and is not read" in caplog.text
    assert "t-1 has a leader again" in caplog.text


def test_a_partition_without_a_leader_is_in_the_status_until_it_has_one() -> None:
    # The log of a partition may be lost later, so the start of the outage is kept over a restart of the
    # driver.
    source = Led({P0: 10, P1: 5})
    made, running, _ = driver(source)
    made.launcher = launcher = Elects(running.store, Task)
    launcher.source = source
    began = time.time()
    made.run(until_caught_up=True)

    first, second = launcher.told
    (told,) = first.unavailable
    assert (told.topic_partition, first.unavailable_count) == (P1, 1)
    assert second.unavailable_count == 0
    assert began <= told.since <= time.time()
    assert read_status(running.store, "c").unavailable == ()
    keeper = StatusKeeper(running.store, "c", "d", SystemWallClock())
    keeper.leave_out([P1])
    (before,) = read_status(running.store, "c").unavailable
    StatusKeeper(running.store, "c", "e", SystemWallClock()).leave_out([P0, P1])
    assert read_status(running.store, "c").unavailable[1] == before
