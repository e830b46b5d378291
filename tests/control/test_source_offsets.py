"""Altering source offsets: the order of the steps, and what is refused before the first one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from sinksdk import ConnectException, DataException
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OpenedTarget, SourceOffsets
from sinksdk.source import SourceOffset, SourcePartition
from sinksdk.topics.memory import MemoryTopics
from tests.helpers.memory_store import MemoryStore
from tests.helpers.memory_target import MemoryTarget
from tests.runtime.running_sources import Counting, CountingConfig, CountingTask, Running, eventually

CONFIG = {"connector.class": "tests.runtime.running_sources:Counting", "tasks.max": "2"}


class Moving(Counting):
    # A connector that keeps its own offsets, and records whether its tasks were fenced before they were
    # altered.
    def __init__(self, topics: MemoryTopics, *, refuses: bool = False) -> None:
        self.topics = topics
        self.refuses = refuses
        self.epochs: dict[str, int] = {}

    def alter_offsets(
        self, config: Mapping[str, str], offsets: Sequence[tuple[SourcePartition, SourceOffset | None]]
    ) -> bool:
        self.epochs = dict(self.topics.epochs)
        if self.refuses:
            raise ConnectException("no such place")
        return True


def stopped(store: MemoryStore, topics: MemoryTopics, connector: Moving) -> SourceOffsets:
    CountingTask.started.clear()
    with Running(store, topics):
        eventually(lambda: len(topics.positions["c"]) == 2)
    Herder(store).stop("c")
    return SourceOffsets(
        store, lambda raw: OpenedTarget(connector, CountingConfig.parse(raw), MemoryTarget(topics))
    )


def test_the_connector_moves_its_own_offsets_once_its_tasks_are_fenced() -> None:
    # Regression: the connector moved its own offsets while a zombie could still commit to them (KIP-875).
    topics = MemoryTopics()
    connector = Moving(topics)
    offsets = stopped(MemoryStore(), topics, connector)
    before = dict(topics.epochs)
    assert offsets.alter("c", [({"share": "a"}, {"next": 7})]) is True
    assert all(connector.epochs[task] > epoch for task, epoch in before.items())
    assert dict(topics.positions["c"]['{"share":"a"}'].offset) == {"next": 7}


def test_offsets_that_the_connector_refuses_are_not_committed() -> None:
    topics = MemoryTopics()
    offsets = stopped(MemoryStore(), topics, Moving(topics, refuses=True))
    before = topics.positions["c"].copy()
    with pytest.raises(ConnectException, match="no such place"):
        offsets.alter("c", [({"share": "a"}, None)])
    assert topics.positions["c"] == before


@pytest.mark.parametrize("change", [({"share": ["a"]}, None), ({"share": "a"}, {"next": [1]})])
def test_invalid_source_offsets_are_refused_before_tasks_are_fenced(change: Any) -> None:
    topics = MemoryTopics()
    connector = Moving(topics)
    offsets = stopped(MemoryStore(), topics, connector)
    before = dict(topics.epochs)
    with pytest.raises(DataException):
        offsets.alter("c", [change])
    assert (topics.epochs, connector.epochs) == (before, {})
