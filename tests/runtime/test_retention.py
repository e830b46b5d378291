"""Retention overtakes a partition between plan and read: the other partitions are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from sinksdk import ConnectException, OffsetOutOfRangeException, OffsetRange, TopicPartition
from sinksdk.store import committed_offsets
from sinksdk.store.records import GenerationPlan
from tests.runtime.running_sinks import P0, P1, Finished, InProcess, Source, Task, driver


class Retention(Source):
    begin = 0

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        found = super().partitions(subscription)
        return {**found, P0: OffsetRange(self.begin, found[P0].end)}


class Failed(Finished):
    def results(self) -> Any:
        message = "the Spark job failed: OffsetOutOfRange (failOnDataLoss)"
        raise ConnectException(message)


class Overtaken(InProcess):
    source: Retention
    removed = 500
    times = 6

    def launch(self, plan: GenerationPlan) -> Finished:
        starts: Mapping[TopicPartition, int] = {
            r.topic_partition: r.start for task in plan.tasks for r in task.ranges if r.start < r.end
        }
        if P0 in starts and self.times:
            self.times -= 1
            self.source.begin += self.removed
        if starts.get(P0, self.source.begin) < self.source.begin:
            self.plans.append(plan)
            return Failed([])
        return super().launch(plan)


def overtaken(loss: str) -> tuple[Any, Overtaken]:
    source = Retention({P0: 10_000, P1: 1_000})
    made, running, _ = driver(
        source, **{"on.data.loss": loss, "restart.max.attempts": 2, "restart.backoff.ms": 10}
    )
    launcher = Overtaken(running.store, Task)
    launcher.source = source
    made.launcher = launcher
    return made, launcher


def test_records_removed_by_retention_are_skipped_with_on_data_loss_skip() -> None:
    # Retention removes records of the partition between plan and read six times in a row, although only two
    # attempts are allowed.
    made, launcher = overtaken("skip")
    made.run(until_caught_up=True)

    committed = {p: o.offset for p, o in committed_offsets(launcher.store, "c").items()}
    assert committed == {P0: 10_000, P1: 1_000}
    read = [{r.partition for t in plan.tasks for r in t.ranges} for plan in launcher.plans]
    assert {1} in read[:-1], "the other one does not wait for it"


def test_records_removed_by_retention_fail_the_connector_by_default() -> None:
    made, launcher = overtaken("fail")
    launcher.times = 0
    launcher.source.ends[P0] = 100
    made.run(until_caught_up=True)

    made, _, _ = driver(launcher.source, store=launcher.store, **{"on.data.loss": "fail"})
    made.launcher = launcher
    launcher.times, launcher.source.ends[P0] = 6, 10_000
    before = len(launcher.plans)
    with pytest.raises(
        OffsetOutOfRangeException,
        match=r"t-0 is committed up to offset 100.*first offset of the source is 500",
    ):
        made.run(until_caught_up=True)
    assert len(launcher.plans) == before + 1
