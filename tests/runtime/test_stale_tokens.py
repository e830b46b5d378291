"""A driver plans the partitions of tokens that were never committed; its task discards them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sinksdk import OffsetAndMetadata, SinkRecords, Token, TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.records import TaskPlan
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, InProcess, Source, Task, driver

READ = 3
OTHER = TopicPartition("other", 0)


@pytest.fixture
def calls() -> Iterator[list[tuple[object, ...]]]:
    Recording.calls.clear()
    yield Recording.calls
    Recording.calls.clear()


class Recording(Task):
    calls: list[tuple[object, ...]] = []  # noqa: RUF012 - of all its instances

    def open(self, partitions: Any) -> None:
        self.calls.append(("open", *partitions))

    def put(self, records: SinkRecords) -> None:
        self.calls.append(("put", records.partition, records.first_offset))

    def discard(self, partition: TopicPartition, tokens: Any) -> None:
        self.calls.append(("discard", partition, *(token.id for token in tokens)))


def crashed() -> Store:
    # The connector's only task has committed three records and begun an upload; then it died.
    store = MemoryStore()
    generations = Generations(store, "c")
    read = RangePlan.of(P0, 0, end=READ)
    generations.plan(generations.claim(), [TaskPlan(ranges=(read,))], 1)
    taken = take_over(store, "c", 1, 0)
    assert taken is not None
    taken.ledger.commit({P0: OffsetAndMetadata(READ)})
    taken.ledger.prepare({P0: [Token("upload")]})
    return store


def ranges(launcher: InProcess) -> list[dict[TopicPartition, tuple[int, int]]]:
    return [
        {r.topic_partition: (r.start, r.end) for task in plan.tasks for r in task.ranges}
        for plan in launcher.plans
    ]


@pytest.mark.parametrize(
    ("ends", "planned", "after"),
    [
        pytest.param({P0: READ}, {P0: (3, 3)}, [], id="nothing-new"),
        pytest.param({P0: 5}, {P0: (3, 5)}, [("put", P0, 3)], id="new-records"),
        pytest.param({OTHER: 0}, {P0: (3, 3)}, [], id="no-longer-subscribed"),
    ],
)
def test_stale_tokens_are_discarded_before_their_partition_is_opened(
    calls: list[tuple[object, ...]],
    ends: dict[TopicPartition, int],
    planned: dict[TopicPartition, tuple[int, int]],
    after: list[tuple[object, ...]],
) -> None:
    topics = ",".join(partition.topic for partition in ends)
    made, launcher, _ = driver(Source(ends), Recording, store=crashed(), topics=topics)

    made.run(until_caught_up=True)

    assert ranges(launcher) == [planned]
    assert [token.id for noted in launcher.plans[0].stale for token in noted.tokens] == ["upload"]
    assert calls == [("discard", P0, "upload"), ("open", P0), *after]
    assert Generations(launcher.store, "c").claim().stale == {}
