"""The ends of a source and the times of its commits: what is written, and how often."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sinksdk import RetriableException, TopicPartition
from sinksdk.control.ends import EndsKeeper, EndsWatch
from sinksdk.store import table
from sinksdk.store.keys import ends_key
from sinksdk.store.reports import ConnectorEnds
from sinksdk.testing.faults import ManualClock
from tests.helpers.memory_store import MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Scene:
    def __init__(self) -> None:
        self.store = MemoryStore()
        self.clock = ManualClock()
        self.keeper = self.another()

    def another(self) -> EndsKeeper:
        keeper = EndsKeeper(self.store, "c", self.clock)
        keeper.catch_up()
        return keeper

    def written(self) -> ConnectorEnds:
        row = table.read(self.store, ends_key("c"), ConnectorEnds)
        return row.value if row else ConnectorEnds()

    def version(self) -> str | None:
        stored = self.store.get(ends_key("c"))
        return stored.version if stored else None


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_changed_end_offsets_are_written_at_most_every_second(scene: Scene) -> None:
    scene.keeper.update({P0: 5, P1: 7})
    scene.keeper.save_if_due()
    first = scene.version()
    assert scene.written().ends_by_partition() == {P0: 5, P1: 7}

    scene.keeper.update({P0: 6})
    scene.keeper.save_if_due()
    assert scene.version() == first

    scene.clock.advance(1)
    scene.keeper.save_if_due()
    assert scene.written().ends_by_partition() == {P0: 6, P1: 7}

    second = scene.version()
    scene.clock.advance(60)
    scene.keeper.update({P0: 6, P1: 7})
    scene.keeper.save_if_due()
    assert scene.version() == second


def test_a_commit_is_stored_with_its_timestamp(scene: Scene) -> None:
    # A commit older than the first poll has no timestamp; the next driver continues with the known
    # timestamps.
    scene.keeper.committed({P0: 5, P1: None})
    scene.clock.advance(10)
    scene.keeper.committed({P0: 5, P1: None})
    assert scene.written().committed_at_by_partition() == {}

    scene.keeper.committed({P1: 3})
    at = scene.clock.time()
    scene.keeper.save()
    assert scene.written().committed_at_by_partition() == {P1: at}

    scene.clock.advance(100)
    successor = scene.another()
    successor.committed({P0: 5, P1: 3})
    successor.committed({P0: 6, P1: 3})
    successor.save()
    assert scene.written().committed_at_by_partition() == {P0: at + 100, P1: at}


def test_end_offsets_of_another_process_are_overwritten(scene: Scene) -> None:
    other = scene.another()
    other.update({P0: 5})
    other.save()
    scene.keeper.update({P0: 8})
    scene.keeper.save()
    other.update({P0: 9})
    other.save()

    assert scene.written().ends_by_partition() == {P0: 9}


def test_a_hanging_or_failing_source_blocks_nothing_and_is_queried_again(scene: Scene) -> None:
    waiting: list[Callable[[], None]] = []
    ends: list[dict[TopicPartition, int] | Exception] = []

    def read_ends() -> dict[TopicPartition, int]:
        found = ends.pop()
        if isinstance(found, Exception):
            raise found
        return found

    watch = EndsWatch(read_ends, scene.keeper, scene.clock, waiting.append)
    watch.query_if_due()
    scene.clock.advance(60)
    watch.query_if_due()
    assert len(waiting) == 1  # the first poll has not returned yet
    since = scene.clock.time() - 60
    assert scene.written().unknown_since == since, "a paused connector's lag is not the last known one"

    ends.append(RetriableException("the broker is unavailable"))
    waiting.pop()()
    watch.query_if_due()
    scene.clock.advance(1.999)
    watch.query_if_due()
    assert waiting == []

    scene.clock.advance(0.001)
    watch.query_if_due()
    ends.append({P0: 12})
    waiting.pop()()
    assert scene.written().unknown_since == since
    watch.query_if_due()
    assert scene.written().ends_by_partition() == {P0: 12}
    assert scene.written().unknown_since is None
