"""Commits of a task with many partitions: writes in proportion to the change, and archived segments."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, read_commits, table, take_over
from sinksdk.store.base import Stored
from sinksdk.store.generations import Generations
from sinksdk.store.keys import plans_prefix, task_key
from sinksdk.store.ledger import TaskLedger
from sinksdk.store.records import TaskPlan, TaskRecord
from tests.helpers.memory_store import MemoryStore
from tests.store.backends import BACKENDS, LossyStore


class Measured(MemoryStore):
    written = 0

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        self.written += len(stored.body)
        return super()._write(key, stored, if_version)


def planned(store: Store, partitions: int) -> list[TopicPartition]:
    generations, found = Generations(store, "c"), [TopicPartition("t", p) for p in range(partitions)]
    ranges = tuple(RangePlan.of(p, 0, end=9) for p in found)
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    return found


def taken(store: Store, generation: int = 1) -> TaskLedger:
    found = take_over(store, "c", generation, 0)
    assert found is not None
    return found.ledger


def end(ledger: TaskLedger, partition: TopicPartition, offset: int) -> None:
    token = Token(f"upload of {partition} to {offset}")
    ledger.prepare({partition: [token]})
    ledger.commit({partition: OffsetAndMetadata(offset, "files: 12", [token])})
    ledger.mark_published(partition)


def record(store: Store) -> TaskRecord:
    row = table.read(store, task_key("c", 0), TaskRecord)
    assert row is not None
    return row.value


def segments(store: Store) -> list[str]:
    return [key for key in store.list(plans_prefix("c")) if "-task-" in key]


def offsets(store: Store) -> dict[TopicPartition, int]:
    return {p: e.offset for p, e in read_commits(store, "c").committed.items()}


def bytes_per_partition(partitions: int) -> float:
    # Each partition has a commit already, and is closed with another one.
    store = Measured()
    ends = planned(store, partitions)
    before = taken(store)
    before.commit({p: OffsetAndMetadata(5, "files: 11") for p in ends})
    planned(store, partitions)
    ledger = taken(store, 2)
    store.written = 0
    for partition in ends:
        end(ledger, partition, 9)
    ledger.flush()
    assert offsets(store) == dict.fromkeys(ends, 9)
    return store.written / partitions


def test_a_commit_writes_only_changed_partitions() -> None:
    assert bytes_per_partition(600) < 1.5 * bytes_per_partition(60) < 15_000


@pytest.mark.extended
@pytest.mark.parametrize("backend", BACKENDS)
def test_commits_in_segments_are_read(backend: str, new_store: Callable[[str], Store]) -> None:
    store = new_store(backend)
    ends = planned(store, 2 * store.most_entries + 3)
    ledger = taken(store)
    for partition in ends[:-1]:
        ledger.commit({partition: OffsetAndMetadata(3)})
    end(ledger, ends[0], 4)
    ledger.flush()
    expected = {**dict.fromkeys(ends[:-1], 3), ends[0]: 4}
    assert segments(store)
    assert len(record(store).entries) <= store.most_entries
    assert offsets(store) == expected

    second = taken(store)
    with pytest.raises(FencedException):
        ledger.commit({ends[1]: OffsetAndMetadata(7)})
    assert second.committed(ends[1]) == OffsetAndMetadata(3)
    assert offsets(store) == expected
    second.commit({p: OffsetAndMetadata(8) for p in ends})

    claim = Generations(store, "c").claim()
    assert {p: e.offset for p, e in claim.committed.items()} == dict.fromkeys(ends, 8)
    with pytest.raises(FencedException):
        second.commit({ends[1]: OffsetAndMetadata(9)})
    assert offsets(store) == dict.fromkeys(ends, 8)


def test_segments_are_pruned_with_their_generation() -> None:
    # A task may be fenced while it archives commits.
    store = MemoryStore()
    ends = planned(store, 100)
    ledger = taken(store)
    ledger.commit({p: OffsetAndMetadata(3) for p in ends})
    Generations(store, "c").claim()
    with pytest.raises(FencedException):
        ledger.commit({p: OffsetAndMetadata(4) for p in ends})
    assert len(segments(store)) == 2

    planned(store, 100)
    assert segments(store) == []
    assert offsets(store) == dict.fromkeys(ends, 3)


def test_segments_do_not_grow_with_time() -> None:
    store = MemoryStore()
    ends = planned(store, 100)
    ledger = taken(store)
    for offset in range(1, 200):
        ledger.commit({p: OffsetAndMetadata(offset) for p in ends})
    assert len(segments(store)) <= 3
    assert len(segments(store)) == len(record(store).segments)
    assert offsets(store) == dict.fromkeys(ends, 199)


def test_a_commit_in_a_segment_can_be_withdrawn() -> None:
    store = MemoryStore()
    ends = planned(store, 100)
    ledger = taken(store)
    ledger.prepare({ends[0]: [Token("x")]})
    ledger.commit({p: OffsetAndMetadata(3, publish=[Token("x")] if p == ends[0] else []) for p in ends})
    assert record(store).entries == ()
    with pytest.raises(ConnectException, match="would overwrite tokens"):
        ledger.commit({ends[0]: OffsetAndMetadata(4)})
    ledger.withdraw(ends[0], OffsetAndMetadata(1), [Token("x")])
    assert taken(store).is_withdrawn(ends[0])
    assert offsets(store)[ends[0]] == 1


def test_an_older_sinksdk_refuses_a_record_with_segments() -> None:
    # An older version would treat archived commits as missing. Records without segments stay readable.
    store = MemoryStore()
    ends = planned(store, 100)
    ledger = taken(store)
    assert json.loads(store._read(task_key("c", 0)).body)["format"] == 1
    ledger.commit({p: OffsetAndMetadata(3) for p in ends})
    assert json.loads(store._read(task_key("c", 0)).body)["format"] == 2


def test_a_lost_segment_is_an_error() -> None:
    store = MemoryStore()
    ends = planned(store, 100)
    taken(store).commit({p: OffsetAndMetadata(3) for p in ends})
    (key,) = segments(store)
    store.delete(key, store.version(key))
    for look in (
        lambda: read_commits(store, "c"),
        lambda: Generations(store, "c").claim(),
    ):
        with pytest.raises(ConnectException, match="has lost a segment with commits of task 0"):
            look()


def test_commits_are_consistent_while_segments_are_replaced() -> None:
    store = LossyStore(MemoryStore())
    ends = planned(store.inner, 100)
    ledger = taken(store.inner)
    ledger.commit({p: OffsetAndMetadata(3) for p in ends})
    read, news = store._read, iter([4, 5, 6])

    def meanwhile(key: str) -> Stored | None:
        if "-task-" in key and (offset := next(news, None)) is not None:
            ledger.commit({p: OffsetAndMetadata(offset) for p in ends})
        return read(key)

    store._read = meanwhile
    assert set(offsets(store).values()) <= {3, 4, 5, 6}
    assert len(offsets(store)) == 100
