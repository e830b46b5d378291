"""``offset.source=group``: where a connector begins that another system has run before."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import pytest

from sinksdk import (
    ConfigException,
    RetriableException,
    TopicPartition,
)
from sinksdk.store import committed_offsets
from tests.runtime.test_driver import P0, P1, Source, driver

FROM_GROUP = {"offset.source": "group", "offset.mirror": False}


class Group:
    """A consumer group of somebody else; raises what it is told to, once each."""

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


def test_a_group_says_where_to_begin() -> None:
    """What it has committed is committed here, before anything is read."""
    made, launcher, _ = driver(Source({P0: 5, P1: 5}), group=Group({P0: 3}), **FROM_GROUP)

    made.run(until_caught_up=True)

    read = {r.partition: r.start for plan in launcher.plans for task in plan.tasks for r in task.ranges}
    assert read == {0: 3, 1: 0}


def test_a_group_that_is_in_use_says_nothing() -> None:
    """Regression: the connector still ran in Connect, and both archived the same records."""
    group = Group({P0: 3}, in_use=True)
    made, launcher, _ = driver(Source({P0: 5}), group=group, **FROM_GROUP)

    with pytest.raises(
        ConfigException,
        match=r"consumer group connect-c at here:9092 is in use.*stop it first.*nothing was read",
    ):
        made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c") == {}
    assert launcher.plans == []


def test_a_group_that_does_not_answer_is_asked_again() -> None:
    """Regression: a coordinator that was loading ended the start with exit code 1."""
    loading = [RetriableException("the coordinator is loading")] * 2
    made, launcher, _ = driver(Source({P0: 5}), group=Group({P0: 3}, *loading), **FROM_GROUP)

    made.run(until_caught_up=True)

    assert [r.start for plan in launcher.plans for task in plan.tasks for r in task.ranges] == [3]


def test_a_start_that_waits_for_its_group_can_be_ended() -> None:
    """Nothing is committed: the next start is the first one still."""
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
