from __future__ import annotations

import threading
from collections import Counter

import pytest

from sinksdk import ClosingReason, ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.control.registry import register
from sinksdk.model.plan import RangePlan
from sinksdk.store import StoreUnavailable, closing_request, read_commits, table, take_over
from sinksdk.store.base import Lost, Stored
from sinksdk.store.generations import Claim, Generations, UnpublishedException
from sinksdk.store.keys import (
    config_key,
    plan_key,
    plans_prefix,
    task_count_key,
    task_key,
)
from sinksdk.store.ledger import TaskLedger
from sinksdk.store.records import Closing, TaskCountRecord, TaskPlan, TaskRecord
from sinksdk.testing import ManualClock
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.watches import ClosingWatch
from tests.helpers.memory_store import MemoryStore

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def task(*partitions: TopicPartition, end: int = 100) -> TaskPlan:
    return TaskPlan(ranges=tuple(RangePlan.of(p, 0, end=end) for p in partitions))


def next_generation(generations: Generations, *tasks: TaskPlan) -> Claim:
    claim = generations.claim()
    generations.plan(claim, tasks, 1)
    return claim


def taken(store: MemoryStore, generation: int, number: int = 0) -> TaskLedger:
    found = take_over(store, "c", generation, number)
    assert found is not None
    return found.ledger


def test_generations_are_numbered_from_one(store: MemoryStore) -> None:
    first = Generations(store, "c")

    assert [first.claim().generation, first.claim().generation] == [1, 2]
    assert Generations(store, "c").claim().generation == 3


def test_a_replaced_driver_is_fenced_and_never_claims_again(store: MemoryStore) -> None:
    old, new = Generations(store, "c"), Generations(store, "c")
    old.claim()
    new.claim()

    with pytest.raises(FencedException, match="newer driver"):
        old.claim()
    assert new.is_newest()
    assert not old.is_newest()


def test_an_overtaken_claim_cannot_plan(store: MemoryStore) -> None:
    old, new = Generations(store, "c"), Generations(store, "c")
    claim = old.claim()
    new.claim()

    with pytest.raises(FencedException):
        old.plan(claim, [task(TP)], 1)
    assert take_over(store, "c", claim.generation, 0) is None


def test_commits_of_a_generation_are_the_base_of_the_next(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP), task(OTHER))
    taken(store, 1, 0).commit({TP: OffsetAndMetadata(40, "forty")})
    taken(store, 1, 1).commit({OTHER: OffsetAndMetadata(7)})

    committed = generations.claim().committed
    assert {p: (entry.offset, entry.metadata) for p, entry in committed.items()} == {
        TP: (40, "forty"),
        OTHER: (7, ""),
    }


def test_a_claim_fences_the_tasks_of_the_generation_before(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    zombie = taken(store, 1)
    generations.claim()

    with pytest.raises(FencedException):
        zombie.commit({TP: OffsetAndMetadata(1)})


def test_a_commit_before_the_fence_is_kept(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    taken(store, 1).commit({TP: OffsetAndMetadata(55)})

    assert generations.claim().committed[TP].offset == 55


def test_partitions_outside_a_plan_keep_their_commits(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP, OTHER))
    taken(store, 1).commit({TP: OffsetAndMetadata(1), OTHER: OffsetAndMetadata(2)})
    next_generation(generations, task(TP))
    taken(store, 2).commit({TP: OffsetAndMetadata(3)})
    next_generation(generations, task(TP))

    assert {p: e.offset for p, e in generations.claim().committed.items()} == {TP: 3, OTHER: 2}


def test_an_unplanned_claim_loses_no_commit(store: MemoryStore) -> None:
    first = Generations(store, "c")
    next_generation(first, task(TP), task(OTHER))
    taken(store, 1, 1).commit({OTHER: OffsetAndMetadata(9)})
    first.claim()  # the driver dies

    assert Generations(store, "c").claim().committed[OTHER].offset == 9


def test_uncommitted_tokens_are_carried_until_they_are_discarded(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    taken(store, 1).prepare({TP: [Token("upload")]})
    next_generation(generations, task(OTHER))
    taken(store, 2)

    claim = next_generation(generations, task(TP))
    assert claim.all_unsettled() == {TP}
    ledger = taken(store, 3)
    assert [token.id for token in ledger.stale(TP)] == ["upload"]
    ledger.mark_discarded(TP, ledger.stale(TP))
    ledger.flush()
    assert TP not in generations.claim().all_unsettled()


def test_committed_tokens_are_never_stale(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    ledger = taken(store, 1)
    ledger.prepare({TP: [Token("upload")]})
    ledger.commit({TP: OffsetAndMetadata(5, publish=("upload",))})

    claim = generations.claim()
    assert (claim.stale, [t.id for t in claim.committed[TP].publish]) == ({}, ["upload"])
    assert TP in claim.all_unsettled()


def test_a_lost_plan_is_an_error(store: MemoryStore) -> None:
    next_generation(Generations(store, "c"), task(TP))
    key = plan_key("c", 1)
    store.delete(key, store.get(key).version)  # type: ignore[union-attr]  # it is there

    with pytest.raises(ConnectException, match="lost the plan of generation 1"):
        Generations(store, "c").claim()


def test_old_plans_are_pruned_and_the_last_one_is_kept(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    for _ in range(4):
        next_generation(generations, task(TP))

    assert store.list(plans_prefix("c")) == [plan_key("c", 4)]


class Counting(MemoryStore):
    most_at_once = 20

    def __init__(self) -> None:
        super().__init__()
        self.read: Counter[str] = Counter()
        self.together = threading.Barrier(1)

    def _read(self, key: str) -> Stored | None:
        if "/tasks/" in key:
            self.together.wait(timeout=5)
        stored = super()._read(key)
        self.read[key] += len(stored.body) if stored else 0
        return stored

    def _version(self, key: str) -> str | None:
        stored = self._records.get(key)
        self.read[key] += len(stored.version) if stored else 0
        return stored.version if stored else None


def many(partitions: int, tasks: int) -> list[TaskPlan]:
    found = [TopicPartition("orders", partition) for partition in range(partitions)]
    return [task(*found[number::tasks]) for number in range(tasks)]


def test_checking_for_a_close_request_does_not_read_a_large_plan() -> None:
    store, clock = Counting(), ManualClock()
    generations = Generations(store, "c")
    claim = next_generation(generations, *many(10_000, 100))
    watch = ClosingWatch(store, GenerationSpec("memory:", "id", "c", claim.generation), clock)
    store.read.clear()

    watch.check()
    assert watch.request() is None
    assert store.read.total() < 1024
    assert generations.is_newest()
    assert generations.successor() is None
    assert store.read.total() < 1024

    generations.close_running(Closing(reason=ClosingReason.REBALANCE, timeout=5.0))
    store.read.clear()
    watch.check()
    assert watch.request() is not None
    assert store.read.total() < 1024


def test_tasks_are_fenced_concurrently() -> None:
    store = Counting()
    generations = Generations(store, "c")
    next_generation(generations, *many(100, 100))
    for number in range(100):
        taken(store, 1, number)
    store.together = threading.Barrier(20)

    assert generations.claim().generation == 2
    store.together = threading.Barrier(1)
    assert {table.read(store, task_key("c", n), TaskRecord).value.generation for n in range(100)} == {2}


def test_a_close_request_is_pruned_with_its_plan(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    generations.close_running(Closing(reason=ClosingReason.REBALANCE, timeout=5.0))
    next_generation(generations, task(TP))

    assert store.list(plans_prefix("c")) == [plan_key("c", 2)]


def test_a_close_request_is_written_once_and_seen_in_the_plan(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    generations.close_running(Closing(reason=ClosingReason.REBALANCE, timeout=5.0))
    generations.close_running(Closing(reason=ClosingReason.SHUTDOWN, timeout=1.0))

    found = take_over(store, "c", 1, 0)
    assert found is not None
    assert found.plan.closing == Closing(reason=ClosingReason.REBALANCE, timeout=5.0)
    assert closing_request(store, "c", 1) == found.plan.closing


def test_a_record_of_a_newer_generation_fences_the_claim(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    store.put(task_key("c", 0), TaskRecord(generation=99, attempt=1).as_json(), None)

    with pytest.raises(FencedException):
        generations.claim()


def test_a_base_pruned_by_a_newer_driver_means_fencing(store: MemoryStore) -> None:
    # Regression: a driver that was overtaken between its claim and reading the base took the store for
    # damaged.
    next_generation(Generations(store, "c"), task(TP))
    old = Generations(store, "c")
    count = old._claim()
    next_generation(Generations(store, "c"), task(TP))

    with pytest.raises(FencedException):
        old._base(count)


def test_read_commits_does_not_fence_tasks(store: MemoryStore) -> None:
    generations = Generations(store, "c")
    next_generation(generations, task(TP))
    ledger = taken(store, 1)
    ledger.commit({TP: OffsetAndMetadata(40)})

    assert read_commits(store, "c").committed[TP].offset == 40
    ledger.commit({TP: OffsetAndMetadata(41)})
    assert read_commits(store, "c").committed[TP].offset == 41
    assert read_commits(store, "other").committed == {}


def test_records_included_in_a_plan_are_not_merged_again(store: MemoryStore) -> None:
    # Regression: a task that did not start left its old tokens, and the next merge listed them as stale
    # again.
    generations = Generations(store, "c")
    next_generation(generations, task(OTHER), task(TP))
    taken(store, 1, 1).prepare({TP: [Token("path")]})  # the task dies
    next_generation(generations, task(TP))
    ledger = taken(store, 2)
    ledger.mark_discarded(TP, ledger.stale(TP))
    ledger.prepare({TP: [Token("other path")]})
    ledger.commit({TP: OffsetAndMetadata(100, publish=("other path",))})
    ledger.mark_published(TP)
    ledger.flush()
    next_generation(generations, task(TP), task(OTHER))
    taken(store, 3, 0)  # task 1 does not start at all

    claim = generations.claim()
    assert (claim.stale, claim.committed[TP].offset, claim.committed[TP].publish) == ({}, 100, ())


def test_a_failed_fencing_leaves_the_plan_unchanged(store: MemoryStore) -> None:
    # KIP-618: the next round fences the same tasks.
    next_generation(Generations(store, "c"), task(TP), task(OTHER))
    broken = BrokenStore(store, task_key("c", 1))

    with pytest.raises(StoreUnavailable):
        Generations(broken, "c").claim()

    count = table.read(store, task_count_key("c"), TaskCountRecord)
    assert count is not None
    assert (count.value.claimed, count.value.planned, count.value.tasks) == (2, 1, 2)
    third = Generations(store, "c").claim()
    assert third.generation == 3
    assert [table.read(store, task_key("c", n), TaskRecord).value.generation for n in (0, 1)] == [3, 3]


class BrokenStore(MemoryStore):
    def __init__(self, other: MemoryStore, key: str) -> None:
        super().__init__(patience=0.05)
        self._records = other._records
        self._broken = key

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if key == self._broken:
            raise Lost("down")
        return super()._write(key, stored, if_version)


def test_a_connector_created_again_is_fenced_against_its_former_self(store: MemoryStore) -> None:
    # KIP-618: the task count record is kept when the configuration is deleted; generations continue.
    register(store, "c", {"topics": "t"})
    next_generation(Generations(store, "c"), task(TP))
    zombie = taken(store, 1)
    row = store.get(config_key("c"))
    assert row is not None
    store.delete(config_key("c"), row.version)

    again = register(store, "c", {"topics": "t"})
    claim = next_generation(Generations(store, "c"), task(TP))

    assert again.incarnation != row.value["incarnation"]
    assert claim.generation == 2
    with pytest.raises(FencedException):
        zombie.commit({TP: OffsetAndMetadata(1)})


def test_offsets_below_visible_records_above_a_withdrawn_commit_are_refused(
    store: MemoryStore,
) -> None:
    # An operator's commit does not state which records are visible, so these would be written twice.
    generations = Generations(store, "c")
    generations.plan(generations.claim(), [task(TP, OTHER)], 1)
    taken = take_over(store, "c", 1, 0)
    assert taken is not None
    taken.ledger.prepare({TP: [Token("a")]})
    taken.ledger.commit({TP: OffsetAndMetadata(30, publish=[Token("a")])})
    taken.ledger.withdraw(TP, OffsetAndMetadata(10), [Token("a")], 25)
    taken.ledger.flush()
    for offset in (None, 10, 24):
        generations = Generations(store, "c")
        with pytest.raises(
            UnpublishedException, match=r"withdrawn commits of t-0 \(up to offset 25\) are visible"
        ):
            generations.alter(generations.claim(), {TP: offset, OTHER: 3}, 1, {})
    generations = Generations(store, "c")
    generations.alter(generations.claim(), {TP: 25}, 1, {})

    assert Generations(store, "c").claim().committed[TP].offset == 25
