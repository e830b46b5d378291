"""``offset.source=group``: the first offsets of a connector that another system ran before."""

from __future__ import annotations

import math
import threading
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import pytest

from sinksdk import (
    ConfigException,
    ConnectException,
    OffsetAndMetadata,
    RetriableException,
    SinkRecords,
    TopicPartition,
)
from sinksdk.store import committed_offsets
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, Source, Task, driver

FROM_GROUP = {"offset.source": "group", "offset.mirror": False}


class Group:
    def __init__(
        self, offsets: Mapping[TopicPartition, int], *errors: Exception, in_use: bool = False
    ) -> None:
        self.committed = dict(offsets)
        self.errors = list(errors)
        self.in_use = in_use

    def __str__(self) -> str:
        return "consumer group connect-c at here:9092"

    def offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        self._fail()
        return {p: offset for p, offset in self.committed.items() if p in partitions}

    def write(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.committed |= offsets

    def is_in_use(self, offsets: Mapping[TopicPartition, int]) -> bool:
        self._fail()
        return self.in_use

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)


def test_start_offsets_come_from_the_consumer_group() -> None:
    # The driver commits the group's offsets before any record is read.
    made, launcher, _ = driver(Source({P0: 5, P1: 5}), group=Group({P0: 3}), **FROM_GROUP)

    made.run(until_caught_up=True)

    read = {r.partition: r.start for plan in launcher.plans for task in plan.tasks for r in task.ranges}
    assert read == {0: 3, 1: 0}


def test_a_consumer_group_in_use_is_refused() -> None:
    # Regression: the connector still ran in Connect, so that both archived the same records.
    group = Group({P0: 3}, in_use=True)
    made, launcher, _ = driver(Source({P0: 5}), group=group, **FROM_GROUP)

    with pytest.raises(
        ConfigException,
        match=r"consumer group connect-c at here:9092 is in use.*stop that first.*nothing was read",
    ):
        made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c") == {}
    assert launcher.plans == []


def test_an_unresponsive_consumer_group_is_queried_again() -> None:
    # Regression: a coordinator that was loading ended the start with exit code 1.
    loading = [RetriableException("the coordinator is loading")] * 2
    made, launcher, _ = driver(Source({P0: 5}), group=Group({P0: 3}, *loading), **FROM_GROUP)

    made.run(until_caught_up=True)

    assert [r.start for plan in launcher.plans for task in plan.tasks for r in task.ranges] == [3]


def test_a_start_that_waits_for_its_consumer_group_can_be_stopped() -> None:
    # The driver has committed nothing, so the next start counts as the first one.
    away = [RetriableException("no broker answers")] * 100_000
    made, launcher, _ = driver(Source({P0: 5}), group=Group({P0: 3}, *away), **FROM_GROUP)
    thread = threading.Thread(target=made.run)
    thread.start()
    made.rebalance()
    thread.join(0.1)
    assert thread.is_alive(), "nothing is there to rebalance"
    made.close()
    thread.join(5)

    assert not thread.is_alive()
    assert committed_offsets(launcher.store, "c") == {}


class TwoPhase(Task):
    seen: ClassVar[list[str]] = []
    down: ClassVar[float] = math.inf

    def put(self, records: SinkRecords) -> None:
        self.context.request_commit()

    def pre_commit(self, offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
        tokens = {p: f"{p} to {at.offset}" for p, at in offsets.items()}
        self.context.prepared({p: [token] for p, token in tokens.items()})
        return {p: OffsetAndMetadata(at.offset, publish=[tokens[p]]) for p, at in offsets.items()}

    def publish(self, partition: TopicPartition, tokens: Any) -> None:
        if float(tokens[0].id.split()[-1]) > self.down:
            message = "the outside world is away"
            raise ConnectException(message)
        self.seen.extend(token.id for token in tokens)


@pytest.fixture
def two_phase() -> type[TwoPhase]:
    class Fresh(TwoPhase):
        seen: ClassVar[list[str]] = []

    return Fresh


def test_the_consumer_group_never_includes_invisible_records(two_phase: type[TwoPhase]) -> None:
    # Regression: the group was at 9, but records beyond 6 were not published: a successor lost 3 records.
    group, store, source = Group({}), MemoryStore(), Source({P0: 6})
    driver(source, two_phase, group=group, store=store)[0].run(until_caught_up=True)
    assert group.committed == {P0: 6}

    source.ends[P0], two_phase.down = 9, 6
    with pytest.raises(ConnectException, match="the outside world is away"):
        driver(source, two_phase, group=group, store=store, **{"restart.max.attempts": 0})[0].run(
            until_caught_up=True
        )
    assert committed_offsets(store, "c")[P0].offset == 9
    assert group.committed == {P0: 6}

    two_phase.down = math.inf
    driver(source, two_phase, group=group, store=store)[0].run(until_caught_up=True)
    assert group.committed == {P0: 9}
    assert two_phase.seen == ["t-0 to 6", "t-0 to 9"]


def test_the_consumer_group_shows_the_last_published_commit(two_phase: type[TwoPhase]) -> None:
    store, source = MemoryStore(), Source({P0: 6})
    driver(source, two_phase, store=store)[0].run(until_caught_up=True)
    source.ends[P0], two_phase.down = 9, 6
    with pytest.raises(ConnectException, match="the outside world is away"):
        driver(source, two_phase, store=store, **{"restart.max.attempts": 0})[0].run(until_caught_up=True)

    group = Group({})
    with pytest.raises(ConnectException, match="the outside world is away"):
        driver(source, two_phase, group=group, store=store, **{"restart.max.attempts": 0})[0].run(
            until_caught_up=True
        )
    assert group.committed == {P0: 6}
