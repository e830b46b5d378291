from __future__ import annotations

import pytest

from sinksdk import ConnectException, OffsetAndMetadata, Token
from sinksdk.store import Store, StoreUnavailable, table, take_over
from sinksdk.store.keys import (
    plan_key,
    task_key,
)
from sinksdk.store.ledger import TaskLedger, merge
from sinksdk.store.records import (
    GenerationPlan,
    PartitionCommit,
    TaskRecord,
    digest,
)
from tests.helpers.memory_store import MemoryStore
from tests.store.backends import LossyStore
from tests.store.protocol import P0, P1, P2, A, B, C, entry, note, plan, recorded


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


D, B_NEW = Token("d"), Token("b-new")


def merged(store: Store, generation: int, tasks: int = 1) -> object:
    base = table.read(store, plan_key("c", generation), GenerationPlan).value
    return merge(base, [recorded(store, task) for task in range(tasks)])


def test_an_outage_is_not_reported_as_fencing(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    lossy = LossyStore(store, patience=0.02)
    ledger = take_over(lossy, "c", 1, 0).ledger
    lossy.is_down = True
    with pytest.raises(StoreUnavailable):
        ledger.commit({P0: OffsetAndMetadata(1)})
    assert ledger.committed(P0) is None


@pytest.fixture
def ledger(store: MemoryStore) -> TaskLedger:
    plan(store, 5, [P0, P1], committed=(entry(P0, 10, 3, C),), stale=(note(P0, A), note(P2, B)))
    return take_over(store, "c", 5, 0).ledger


def test_a_commit_is_one_write_with_its_tokens(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.prepare({P1: [Token("x"), Token("y")]})
    assert recorded(store).prepared == (note(P1, Token("x"), Token("y")),)
    ledger.commit({P1: OffsetAndMetadata(7, "m", [Token("x", {"size": 3})])})
    assert recorded(store).prepared == (note(P1, Token("y")),)
    written = PartitionCommit.of(P1, OffsetAndMetadata(7, "m", [Token("x", {"size": 3})]), 5)
    assert recorded(store).entries == (entry(P0, 10, 3, C), written)
    assert ledger.prepared(P1) == (Token("y"),)


def test_tokens_to_publish_are_never_overwritten(store: MemoryStore, ledger: TaskLedger) -> None:
    # If one partition is refused, nothing of the commit is written.
    before = recorded(store)
    with pytest.raises(
        ConnectException, match="at 20 would overwrite tokens that are committed and not published: c"
    ):
        ledger.commit({P1: OffsetAndMetadata(1), P0: OffsetAndMetadata(20)})
    assert recorded(store) == before
    assert ledger.committed(P1) is None


def test_published_is_durable_with_the_next_write(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.mark_published(P0)
    assert ledger.committed(P0) == OffsetAndMetadata(10)
    assert recorded(store).entries == (entry(P0, 10, 3, C),)
    ledger.flush()
    assert recorded(store).entries == (entry(P0, 10, 5),)
    ledger.commit({P0: OffsetAndMetadata(20)})


def test_stale_tokens_are_limited_to_the_partitions_of_the_task(ledger: TaskLedger) -> None:
    assert ledger.stale(P0) == (A,)
    assert ledger.stale(P1) == ledger.stale(P2) == ()


def test_discarded_is_durable_with_the_next_write(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.mark_discarded(P0, [A])
    assert ledger.stale(P0) == ()
    assert recorded(store).discarded == ()
    assert take_over(store, "c", 5, 0).ledger.stale(P0) == (A,), "a crash before the next write: once more"


def test_a_further_attempt_sees_discarded_tokens(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.mark_discarded(P0, [A])
    ledger.flush()
    assert recorded(store).discarded == ("a",)
    assert take_over(store, "c", 5, 0).ledger.stale(P0) == ()


def test_tokens_prepared_by_an_earlier_attempt_are_stale(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.prepare({P1: [B]})
    second = take_over(store, "c", 5, 0).ledger
    assert second.stale(P1) == (B,)
    assert second.prepared(P1) == ()
    second.prepare({P1: [D]})
    assert recorded(store).prepared == (note(P1, B, D),), "still noted, beside the own ones"
    second.mark_discarded(P1, [B])
    second.flush()
    assert recorded(store).prepared == (note(P1, D),)
    assert recorded(store).discarded == (), "only tokens of the plan need naming"
    assert take_over(store, "c", 5, 0).ledger.stale(P1) == (D,)


def test_discarded_tokens_of_this_attempt_are_no_longer_prepared(
    store: MemoryStore, ledger: TaskLedger
) -> None:
    ledger.prepare({P1: [B]})
    ledger.mark_discarded(P1, [B])
    ledger.flush()
    assert recorded(store).prepared == ()
    assert ledger.prepared(P1) == ()


def test_flush_writes_only_unsaved_marks(store: MemoryStore, ledger: TaskLedger) -> None:
    before = store.get(task_key("c", 0)).version
    ledger.flush()
    ledger.mark_published(P0)
    ledger.flush()
    ledger.flush()
    assert store.get(task_key("c", 0)).version != before
    after = store.get(task_key("c", 0)).version
    ledger.flush()
    assert store.get(task_key("c", 0)).version == after


def test_a_token_with_a_refused_id_is_still_discarded(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.mark_published(P0)
    ledger.prepare({P1: [B_NEW]})
    second = take_over(store, "c", 5, 0).ledger
    for token, partition in ((A, P0), (A, P1), (B_NEW, P1), (B_NEW, P0)):
        with pytest.raises(ConnectException, match=f"token {token.id} was prepared by an earlier attempt"):
            second.prepare({partition: [token]})
    second.flush()
    left = merged(store, 5).stale
    assert left[P0].keys() == {"a"}
    assert left[P1].keys() == {"b-new"}


def test_a_discarded_id_is_refused_in_later_generations(store: MemoryStore, ledger: TaskLedger) -> None:
    ledger.mark_discarded(P0, [A])
    ledger.flush()
    again = take_over(store, "c", 5, 0).ledger
    assert "token a was discarded before" in again.unusable({P0: [A]})[P0]
    kept = merged(store, 5).retired
    assert [(row.topic_partition, row.ids) for row in kept] == [(P0, (digest("a"),))]
    base = GenerationPlan(generation=6, config_version=1, tasks=(), committed=(), retired=kept)
    assert merge(base, []).retired == kept


def test_partly_visible_to_is_kept_until_a_commit_beyond_it(store: MemoryStore, ledger: TaskLedger) -> None:
    def ahead() -> int | None:
        ledger.flush()
        return merged(store, 5).committed[P0].partly_visible_to

    ledger.mark_published(P0)
    ledger.prepare({P0: [D]})
    ledger.commit({P0: OffsetAndMetadata(30, publish=[D])})
    assert ahead() is None
    ledger.withdraw(P0, OffsetAndMetadata(10), [D], 25)
    assert ahead() == 25

    ledger.prepare({P0: [B_NEW]})
    ledger.commit({P0: OffsetAndMetadata(20, publish=[B_NEW])})
    assert ahead() == 25
    ledger.withdraw(P0, OffsetAndMetadata(12), [B_NEW], 14)
    assert ahead() == 25

    ledger.commit({P0: OffsetAndMetadata(24)})
    assert ahead() == 25
    ledger.commit({P0: OffsetAndMetadata(25)})
    assert ahead() is None


def test_a_withdrawn_token_of_an_older_version_is_read() -> None:
    base = GenerationPlan(generation=5, config_version=1, tasks=(), committed=(), stale=(note(P0, A),))
    record = TaskRecord(generation=5, attempt=1, prepared=(note(P0, A),), discarded=("a",))
    assert merge(base, [record]).stale == {P0: {"a": A}}
