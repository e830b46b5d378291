"""Commits of topics that a connector is no longer subscribed to are kept, outside of the plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from sinksdk import ConnectException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.store import read_commits, table, take_over
from sinksdk.store.base import Stored
from sinksdk.store.generations import Claim, Generations
from sinksdk.store.keys import dropped_key, plan_key
from sinksdk.store.records import GenerationPlan, TaskPlan
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import Source, driver

KEPT = TopicPartition("kept", 0)
GONE = [TopicPartition("gone", number) for number in range(300)]
METADATA = "as much as an author writes of a partition"


class Watched(MemoryStore):
    def __init__(self) -> None:
        super().__init__()
        self.written: Counter[str] = Counter()

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        self.written["".join(key.split("/")[2:3])] += len(stored.body)
        return super()._write(key, stored, if_version)

    def read_dropped(self) -> int:
        return sum(len(stored.body) for key, stored in self._records.items() if "/dropped/" in key)


@pytest.fixture
def store() -> Watched:
    return Watched()


def is_kept(topic: str) -> bool:
    return topic == "kept"


def planned(generations: Generations, claim: Claim, offsets: Mapping[TopicPartition, int]) -> TaskPlan:
    return TaskPlan(ranges=tuple(RangePlan.of(p, 0, end=end) for p, end in offsets.items()))


def run(
    store: Watched, generations: Generations, offsets: Mapping[TopicPartition, int], **more: Any
) -> Claim:
    claim = generations.claim()
    generations.plan(claim, [planned(generations, claim, offsets)], 1, **more)
    taken = take_over(store, "c", claim.generation, 0)
    assert taken is not None
    taken.ledger.commit({p: OffsetAndMetadata(offset, METADATA) for p, offset in offsets.items()})
    return claim


def offsets_of(store: Watched) -> dict[TopicPartition, int]:
    return {p: entry.offset for p, entry in read_commits(store, "c").committed.items()}


def test_commits_of_a_dropped_topic_are_written_once(store: Watched) -> None:
    # Regression: commits of dropped topics were in every plan.
    generations = Generations(store, "c")
    run(store, generations, {KEPT: 1, **dict.fromkeys(GONE, 7)}, topic_ids={"kept": "k", "gone": "g"})
    run(store, generations, {KEPT: 2}, is_read=is_kept)
    once = store.written["dropped"]
    assert once > 300 * len(METADATA)
    store.written.clear()
    for offset in range(3, 13):
        run(store, generations, {KEPT: offset}, is_read=is_kept)
    assert store.written["dropped"] == 0
    assert store.written["generations"] < 10 * 1_500
    assert offsets_of(store) == {KEPT: 12, **dict.fromkeys(GONE, 7)}


def test_the_next_driver_reads_commits_of_dropped_topics(store: Watched) -> None:
    run(store, Generations(store, "c"), {KEPT: 1, GONE[0]: 7}, topic_ids={"kept": "k", "gone": "g"})
    for offset in (2, 3):
        run(store, Generations(store, "c"), {KEPT: offset}, is_read=is_kept)
    claim = Generations(store, "c").claim()
    assert {p: (entry.offset, entry.metadata) for p, entry in claim.committed.items()} == {
        KEPT: (3, METADATA),
        GONE[0]: (7, METADATA),
    }
    assert claim.topic_ids == {"kept": "k", "gone": "g"}


def test_a_topic_that_is_subscribed_to_again_is_in_the_plan_again(store: Watched) -> None:
    generations = Generations(store, "c")
    run(store, generations, {KEPT: 1, GONE[0]: 7, GONE[1]: 8})
    set_apart = run(store, generations, {KEPT: 2}, is_read=is_kept).generation
    assert store.get(dropped_key("c", set_apart)) is not None
    run(store, generations, {GONE[0]: 9})
    assert store.get(dropped_key("c", set_apart)) is None
    assert offsets_of(store) == {KEPT: 2, GONE[0]: 9, GONE[1]: 8}


def test_removed_offsets_of_a_dropped_topic_are_not_restored(store: Watched) -> None:
    # If an operator alters offsets while the topic is dropped, the altered offsets replace the archived ones.
    generations = Generations(store, "c")
    run(store, generations, {KEPT: 1, GONE[0]: 7, GONE[1]: 8})
    run(store, generations, {KEPT: 2}, is_read=is_kept)
    hand = Generations(store, "c")
    hand.alter(hand.claim(), {GONE[0]: None, GONE[1]: 3}, 1, {})
    after = Generations(store, "c")
    for offset in (3, 4):
        run(store, after, {KEPT: offset}, is_read=is_kept)
    assert offsets_of(store) == {KEPT: 4, GONE[1]: 3}


def test_unpublished_commits_of_a_dropped_topic_stay_in_the_plan(store: Watched) -> None:
    generations = Generations(store, "c")
    claim = generations.claim()
    generations.plan(claim, [planned(generations, claim, {GONE[0]: 7})], 1)
    taken = take_over(store, "c", claim.generation, 0)
    assert taken is not None
    taken.ledger.prepare({GONE[0]: [Token("upload")]})
    taken.ledger.commit({GONE[0]: OffsetAndMetadata(7, publish=["upload"])})
    plan = generations.plan(generations.claim(), [], 1, is_read=is_kept)
    assert [entry.offset for entry in plan.committed] == [7]
    assert plan.dropped is None


def test_an_overtaken_driver_changes_no_dropped_commits(store: Watched) -> None:
    run(store, Generations(store, "c"), {KEPT: 1, GONE[0]: 7})
    old, new = Generations(store, "c"), Generations(store, "c")
    claim = old.claim()
    run(store, new, {GONE[0]: 9})
    with pytest.raises(ConnectException, match="newer driver"):
        old.plan(claim, [], 1, is_read=is_kept)
    assert offsets_of(store) == {KEPT: 1, GONE[0]: 9}


def test_lost_commits_of_dropped_topics_are_an_error(store: Watched) -> None:
    # A lost archived value must not make the connector read a topic from its start.
    generations = Generations(store, "c")
    run(store, generations, {KEPT: 1, GONE[0]: 7})
    claim = run(store, generations, {KEPT: 2}, is_read=is_kept)
    key = dropped_key("c", claim.generation)
    store.delete(key, str(store.version(key)))
    for look in (Generations(store, "c").claim, lambda: read_commits(store, "c")):
        with pytest.raises(ConnectException, match=r"has lost the commits .* restore the store"):
            look()


def test_an_older_sinksdk_refuses_a_plan_with_dropped_topics(store: Watched) -> None:
    # An older version would plan without the archived commits, and forget them.
    generations = Generations(store, "c")
    run(store, generations, {KEPT: 1, GONE[0]: 7})
    claim = run(store, generations, {KEPT: 2}, is_read=is_kept)
    row = table.read(store, plan_key("c", claim.generation), GenerationPlan)
    assert row is not None
    assert (row.value.format, row.value.model_copy(update={"dropped": None}).format) == (3, 1)


def test_a_topic_subscribed_to_again_is_read_from_its_commit(store: Watched) -> None:
    for at, topics in enumerate(("kept,gone", "kept", "kept", "kept,gone"), 1):
        there = {p: 10 * at for p in (KEPT, GONE[0]) if p.topic in topics}
        made, launcher, _ = driver(Source(there), store=store, topics=topics)
        made.run(until_caught_up=True)
    starts = {r.topic_partition: r.start for plan in launcher.plans for t in plan.tasks for r in t.ranges}
    assert starts == {KEPT: 30, GONE[0]: 10}


def passing(store: Watched, generations: Generations, count: int, first: int = 0) -> None:
    for number in range(first, first + count):
        run(
            store, generations, {TopicPartition(f"build-{number}", 0): 9}, topic_ids={f"build-{number}": "id"}
        )


def plan_of(store: Watched, generation: int) -> tuple[GenerationPlan, int]:
    row = store._read(plan_key("c", generation))
    assert row is not None
    return GenerationPlan.model_validate_json(row.body), len(row.body)


def test_plans_do_not_grow_with_short_lived_topics(store: Watched) -> None:
    # Commits that no recent generation has added to are archived separately.
    generations = Generations(store, "c")
    passing(store, generations, 100)
    _, size = plan_of(store, 100)
    passing(store, generations, 300, first=100)
    plan, later = plan_of(store, 400)

    assert len(plan.committed) < 60
    assert later < 1.5 * size
    assert offsets_of(store) == {TopicPartition(f"build-{number}", 0): 9 for number in range(400)}
    assert Generations(store, "c").claim().topic_ids == {f"build-{number}": "id" for number in range(400)}


def test_commits_of_many_idle_topics_are_written_in_one_value(store: Watched) -> None:
    generations = Generations(store, "c")
    passing(store, generations, 320)
    whole = store.written["dropped"]
    last = store.read_dropped()

    assert whole < 320 / 16 * last


def test_an_idle_topic_is_resumed_from_its_commit(store: Watched) -> None:
    generations = Generations(store, "c")
    passing(store, generations, 100)
    back = TopicPartition("build-3", 0)
    claim = run(store, generations, {back: 12})
    assert claim.committed[back].offset == 9
    plan, _ = plan_of(store, claim.generation)

    assert back in {entry.topic_partition for entry in plan.committed}
    assert offsets_of(store)[back] == 12
    run(store, generations, {KEPT: 1})
    assert offsets_of(store)[back] == 12
    assert len(offsets_of(store)) == 101


def test_few_idle_topics_stay_in_the_plan(store: Watched) -> None:
    generations = Generations(store, "c")
    run(store, generations, dict.fromkeys(GONE[:5], 7))
    for offset in range(60):
        run(store, generations, {KEPT: offset})

    assert store.written["dropped"] == 0
    assert len(plan_of(store, 61)[0].committed) == 6


def test_commits_of_a_topic_that_is_missing_are_in_no_plan() -> None:
    store, other = Watched(), TopicPartition("other", 0)
    settings = {
        "topics.regex": ".*",
        "topics": "",
        "missing.topic.policy": "wait",
        "missing.topic.grace.ms": "0",
    }
    source = Source({KEPT: 3, other: 5})
    driver(source, store=store, **settings)[0].run(until_caught_up=True)
    del source.ends[other]
    source.ends[KEPT] = 6
    made, launcher, _ = driver(source, store=store, **settings)
    made.run(until_caught_up=True)
    assert {entry.topic for entry in launcher.plans[-1].committed} == {"kept"}
    source.ends[other] = 8
    made, launcher, _ = driver(source, store=store, **settings)
    made.run(until_caught_up=True)

    ranges = [r for plan in launcher.plans for task in plan.tasks for r in task.ranges]
    assert [(r.topic, r.start, r.end) for r in ranges] == [("other", 5, 8)]
    assert offsets_of(store) == {KEPT: 6, other: 8}
