"""Commits of a connector, merged from plans and tasks' records, for its driver and for other processes."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException, OffsetAndMetadata
from sinksdk.store import committed_offsets, open_store, read_commits, take_over
from sinksdk.store.keys import (
    plan_key,
)
from sinksdk.store.ledger import merge
from sinksdk.store.records import (
    GenerationPlan,
    PartitionCommit,
    PreparedTokens,
    TaskRecord,
)
from tests.helpers.memory_store import MemoryStore
from tests.store.backends import LossyStore
from tests.store.protocol import P0, P1, P2, A, B, C, claim, entry, fence, note, plan


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def based(*committed: PartitionCommit, stale: tuple[PreparedTokens, ...] = ()) -> GenerationPlan:
    return GenerationPlan(generation=5, config_version=1, tasks=(), committed=committed, stale=stale)


def test_merging_without_records_gives_no_commits() -> None:
    assert merge(None, []) == ({}, {}, ())


def test_commits_without_a_newer_entry_are_kept() -> None:
    assert merge(based(entry(P0, 10, 3, A)), []).committed == {P0: entry(P0, 10, 3, A)}


def test_the_entry_of_the_highest_generation_wins() -> None:
    old, new = entry(P0, 99, 4), entry(P0, 50, 6)
    records = [TaskRecord(generation=6, entries=(old,)), TaskRecord(generation=6, entries=(new,))]
    assert merge(based(entry(P0, 10, 5)), records).committed == {P0: new}
    assert merge(based(entry(P0, 10, 5)), records[::-1]).committed == {P0: new}
    assert merge(based(entry(P0, 10, 7)), records).committed == {P0: entry(P0, 10, 7)}


def test_a_later_entry_of_the_same_generation_wins_over_the_plan() -> None:
    record = TaskRecord(generation=5, attempt=1, entries=(entry(P0, 20, 5),))
    assert merge(based(entry(P0, 10, 5)), [record]).committed == {P0: entry(P0, 20, 5)}


def test_published_tokens_are_not_merged_again() -> None:
    # An old record may still list tokens that a newer entry has published.
    leftover = TaskRecord(generation=5, entries=(entry(P0, 10, 3, A),))
    publisher = TaskRecord(generation=5, attempt=1, entries=(entry(P0, 10, 5),))
    for records in ([leftover, publisher], [publisher, leftover]):
        assert merge(based(entry(P0, 10, 3, A)), records).committed == {P0: entry(P0, 10, 5)}


def test_prepared_tokens_without_a_commit_are_stale() -> None:
    record = TaskRecord(
        generation=5,
        attempt=1,
        entries=(entry(P0, 20, 5, A),),
        prepared=(note(P0, A, B), note(P1, C)),
    )
    assert merge(based(), [record]).stale == {P0: {"b": B}, P1: {"c": C}}


def test_stale_tokens_are_carried_until_a_task_discards_them() -> None:
    base = based(stale=(note(P0, A, B),))
    assert merge(base, []).stale == {P0: {"a": A, "b": B}}
    record = TaskRecord(generation=5, attempt=1, discarded=("a",))
    assert merge(base, [record]).stale == {P0: {"b": B}}


def test_a_token_discarded_by_another_task_is_settled() -> None:
    noted_by = TaskRecord(generation=5, prepared=(note(P0, A),))
    discarded_by = TaskRecord(generation=5, attempt=1, discarded=("a",))
    assert merge(based(stale=(note(P0, A),)), [noted_by, discarded_by]).stale == {}


def test_reading_commits_of_an_unplanned_connector_returns_none(store: MemoryStore) -> None:
    # The connector is unknown, or has only claimed its first generation.
    assert committed_offsets(store, "c") == {}
    claim(store, 1)
    assert committed_offsets(store, "c") == {}


def test_commits_are_consistent_while_tasks_write(store: MemoryStore) -> None:
    # Records are read while a generation runs and while it is being fenced.
    plan(store, 1, [P0], [P1], committed=(entry(P0, 10, 0), entry(P1, 20, 0), entry(P2, 30, 0)))
    first = take_over(store, "c", 1, 0).ledger
    first.prepare({P0: [A]})
    first.commit({P0: OffsetAndMetadata(11, "m", [A])})
    expected = {P0: OffsetAndMetadata(11, "m", (A,)), P1: OffsetAndMetadata(20), P2: OffsetAndMetadata(30)}
    assert committed_offsets(store, "c") == expected
    claim(store, 2)
    fence(store, 0, 2)
    assert committed_offsets(store, "c") == expected


def test_commits_are_read_by_store_url(tmp_path: object) -> None:
    url = f"sqlite:///{tmp_path}/state.db"
    store = open_store(url, create=True)
    plan(store, 1, [P0], committed=(entry(P0, 10, 0),))
    keys = store.list("")
    assert committed_offsets(url, "c") == {P0: OffsetAndMetadata(10)}
    assert store.list("") == keys


def test_reading_commits_without_the_plan_is_an_error(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    store.delete(plan_key("c", 1), store.get(plan_key("c", 1)).version)
    with pytest.raises(ConnectException, match="has lost the plan of generation 1"):
        read_commits(store, "c")


def test_commits_are_read_again_when_a_generation_is_planned_meanwhile(store: MemoryStore) -> None:
    # The old plan is pruned during the read.
    plan(store, 1, [P0], committed=(entry(P0, 10, 0),))
    lossy = LossyStore(store)
    read = lossy._read
    reads = []

    def planned_meanwhile(key: str) -> object:
        reads.append(key)
        if len(reads) == 2:
            claim(store, 2)
            plan(store, 2, [P0], committed=(entry(P0, 42, 1),))
            store.delete(plan_key("c", 1), store.get(plan_key("c", 1)).version)
        return read(key)

    lossy._read = planned_meanwhile
    assert read_commits(lossy, "c").committed == {P0: entry(P0, 42, 1)}
