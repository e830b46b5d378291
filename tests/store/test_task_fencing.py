"""The owner of a task: taking its record over, and fencing the previous owner (KIP-618 for sinks)."""

from __future__ import annotations

import pytest

from sinksdk import FencedException, OffsetAndMetadata, Token
from sinksdk.store import take_over
from sinksdk.store.base import Lost
from sinksdk.store.keys import (
    task_key,
)
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import (
    TaskRecord,
)
from tests.helpers.memory_store import MemoryStore
from tests.store.backends import LossyStore
from tests.store.protocol import P0, P1, P2, A, claim, entry, fence, note, plan, recorded


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_a_plan_is_current_while_its_generation_is_the_newest(store: MemoryStore) -> None:
    assert current_plan(store, "c", 1) is None
    claim(store, 1)
    assert current_plan(store, "c", 1) is None
    planned = plan(store, 1, [P0])
    assert current_plan(store, "c", 1) == planned
    assert current_plan(store, "c", 2) is None
    claim(store, 2)
    assert current_plan(store, "c", 1) is None
    assert current_plan(store, "c", 2) is None


def test_the_first_attempt_starts_with_the_commits_of_the_plan(store: MemoryStore) -> None:
    plan(store, 1, [P0], [P1], committed=(entry(P0, 10, 0), entry(P1, 20, 0), entry(P2, 30, 0)))
    taken = take_over(store, "c", 1, 1)
    assert recorded(store, 1) == TaskRecord(generation=1, attempt=1, entries=(entry(P1, 20, 0),))
    assert taken.ledger.attempt == 1
    assert taken.ledger.committed(P1) == OffsetAndMetadata(20)
    assert taken.ledger.committed(P0) is None
    assert taken.plan == current_plan(store, "c", 1)


def test_a_further_attempt_starts_with_the_commits_of_the_previous_one(store: MemoryStore) -> None:
    plan(store, 1, [P0], committed=(entry(P0, 10, 0),))
    first = take_over(store, "c", 1, 0).ledger
    first.commit({P0: OffsetAndMetadata(50)})
    second = take_over(store, "c", 1, 0).ledger
    assert second.attempt == 2
    assert second.committed(P0) == OffsetAndMetadata(50)
    assert recorded(store) == TaskRecord(generation=1, attempt=2, entries=(entry(P0, 50, 1),))


def test_a_further_attempt_fences_the_previous_one(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    first = take_over(store, "c", 1, 0).ledger
    take_over(store, "c", 1, 0)
    before = recorded(store)
    for _ in range(2):
        with pytest.raises(FencedException, match="connector c, task 0, generation 1, attempt 1: a newer"):
            first.commit({P0: OffsetAndMetadata(50)})
        with pytest.raises(FencedException):
            first.prepare({P0: [A]})
    assert recorded(store) == before
    assert first.committed(P0) is None
    assert first.prepared(P0) == ()


def test_an_older_generation_takes_over_no_task(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    claim(store, 2)
    assert take_over(store, "c", 1, 0) is None
    plan(store, 2, [P0])
    assert take_over(store, "c", 1, 0) is None
    assert store.get(task_key("c", 0)) is None


def test_a_record_of_a_newer_generation_is_unchanged(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    fence(store, 0, 2)
    before = recorded(store)
    assert take_over(store, "c", 1, 0) is None
    assert recorded(store) == before


def test_a_generation_claimed_during_a_take_over_wins(store: MemoryStore) -> None:
    # The second read sees a generation that was claimed while the record was taken over.
    plan(store, 1, [P0])
    lossy = LossyStore(store)

    def claimed_meanwhile() -> None:
        claim(store, 2)

    lossy.faults["write"].append(claimed_meanwhile)
    assert take_over(lossy, "c", 1, 0) is None


def test_a_fence_during_a_take_over_is_detected(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    lossy = LossyStore(store)
    write = lossy._write

    def fenced_first(key: str, *arguments: object) -> bool:
        lossy._write = write
        claim(store, 2)
        fence(store, 0, 2)
        return write(key, *arguments)

    lossy._write = fenced_first
    assert take_over(lossy, "c", 1, 0) is None
    assert recorded(store) == TaskRecord(generation=2)


def test_the_later_of_two_simultaneous_attempts_wins(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    lossy = LossyStore(store)
    write = lossy._write
    other = []

    def other_first(key: str, *arguments: object) -> bool:
        lossy._write = write
        other.append(take_over(store, "c", 1, 0).ledger)
        return write(key, *arguments)

    lossy._write = other_first
    mine = take_over(lossy, "c", 1, 0).ledger
    assert (other[0].attempt, mine.attempt) == (1, 2)
    mine.commit({P0: OffsetAndMetadata(1)})
    with pytest.raises(FencedException):
        other[0].commit({P0: OffsetAndMetadata(2)})


def test_a_lost_response_does_not_fence_the_task_itself(store: MemoryStore) -> None:
    # The response is lost after the write took effect; the store detects that.
    plan(store, 1, [P0])
    lossy = LossyStore(store)
    lossy.faults["write"].extend(["after", "after", "before"])
    ledger = take_over(lossy, "c", 1, 0).ledger
    assert ledger.attempt == 1
    ledger.commit({P0: OffsetAndMetadata(1)})
    ledger.commit({P0: OffsetAndMetadata(2)})
    assert recorded(store).entries == (entry(P0, 2, 1),)


def test_records_of_all_attempts_of_a_generation_are_counted(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.prepare({P0: [A]})
    ledger.commit({P0: OffsetAndMetadata(10, publish=[A])}, {P0: 7})

    successor = take_over(store, "c", 1, 0).ledger
    assert successor.records(P0) == 7
    successor.mark_published(P0)
    successor.flush()
    assert take_over(store, "c", 1, 0).ledger.records(P0) == 7

    claim(store, 2)
    plan(store, 2, [P0], committed=fence(store, 0, 2).entries)
    next_one = take_over(store, "c", 2, 0).ledger
    assert next_one.records(P0) == 0
    next_one.commit({P0: OffsetAndMetadata(12)})
    assert next_one.records(P0) == 0


def test_moving_the_record_fences_its_task(store: MemoryStore) -> None:
    plan(store, 1, [P0], stale=(note(P0, A),))
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.commit({P0: OffsetAndMetadata(10)})
    claim(store, 2)
    assert fence(store, 0, 2).entries == (entry(P0, 10, 1),)
    with pytest.raises(FencedException):
        ledger.commit({P0: OffsetAndMetadata(20)})
    with pytest.raises(FencedException):
        ledger.prepare({P0: [Token("b")]})
    ledger.mark_discarded(P0, [A])
    with pytest.raises(FencedException):
        ledger.flush()
    assert recorded(store) == TaskRecord(generation=2, attempt=0, entries=(entry(P0, 10, 1),))


def test_a_fence_reads_the_last_commit(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.prepare({P0: [A]})
    ledger.commit({P0: OffsetAndMetadata(10, publish=[A])})
    assert fence(store, 0, 2).entries == (entry(P0, 10, 1, A),)


def test_a_fenced_record_is_taken_over_from_the_plan(store: MemoryStore) -> None:
    plan(store, 1, [P0])
    old = take_over(store, "c", 1, 0).ledger
    old.prepare({P0: [A]})
    old.commit({P0: OffsetAndMetadata(10)})
    claim(store, 2)
    fence(store, 0, 2)
    plan(store, 2, [P1], [P0], committed=(entry(P0, 10, 1),), stale=(note(P0, A),))
    take_over(store, "c", 2, 0)
    assert recorded(store, 0) == TaskRecord(generation=2, attempt=1)
    ledger = take_over(store, "c", 2, 1).ledger
    assert ledger.committed(P0) == OffsetAndMetadata(10)
    assert ledger.stale(P0) == (A,)


def test_losing_each_response_once_changes_no_result() -> None:
    # Each request takes effect and loses its first response.

    class LosesFirst(MemoryStore):
        def __init__(self) -> None:
            super().__init__()
            self.asked: set[tuple[object, ...]] = set()

        def _write(self, key: str, stored: object, if_version: str | None) -> bool:
            answer = super()._write(key, stored, if_version)
            if (key, stored.version) not in self.asked:
                self.asked.add((key, stored.version))
                raise Lost("the answer was lost")
            return answer

    store = LosesFirst()
    store._pause = 0.0
    plan(store, 1, [P0])
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.prepare({P0: [A]})
    ledger.commit({P0: OffsetAndMetadata(10, publish=[A])})
    ledger.mark_published(P0)
    ledger.flush()
    claim(store, 2)
    fence(store, 0, 2)
    with pytest.raises(FencedException):
        ledger.commit({P0: OffsetAndMetadata(20)})
    assert recorded(store) == TaskRecord(generation=2, entries=(entry(P0, 10, 1),))
