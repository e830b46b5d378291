"""The protocol around a task's record: taking over, fencing, merging, discarding (KIP-618 for sinks)."""

from __future__ import annotations

import pytest

from sinksdk import ConnectException, FencedException, OffsetAndMetadata, Token, TopicPartition
from sinksdk.store import (
    MemoryStore,
    Store,
    StoreUnavailable,
    TaskLedger,
    committed_offsets,
    current_plan,
    merge,
    open_store,
    read_commits,
    table,
    take_over,
)
from sinksdk.store.base import Lost
from sinksdk.store.records import (
    Entry,
    GenerationPlan,
    Noted,
    PlannedRange,
    TaskCountRecord,
    TaskPlan,
    TaskRecord,
    plan_key,
    task_count_key,
    task_key,
)
from tests.store.backends import LossyStore

P0, P1, P2 = (TopicPartition("flights", partition) for partition in range(3))
A, B, C = Token("a", {"n": 1}), Token("b"), Token("c")


def entry(partition: TopicPartition, offset: int, generation: int, *tokens: Token) -> Entry:
    return Entry.of(partition, OffsetAndMetadata(offset, publish=tokens), generation)


def note(partition: TopicPartition, *tokens: Token) -> Noted:
    return Noted(topic=partition.topic, partition=partition.partition, tokens=tokens)


def claim(store: Store, generation: int) -> None:
    """A driver claims a generation: tasks and plan stay those of the one before."""
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    record = row.value if row else TaskCountRecord(claimed=0)
    table.write(
        store,
        task_count_key("c"),
        record.model_copy(update={"claimed": generation}),
        row.version if row else None,
    )


def fence(store: Store, task: int, generation: int) -> TaskRecord | None:
    """A driver moves a task's record to its generation."""
    row = table.read(store, task_key("c", task), TaskRecord)
    before = row.value if row else TaskRecord(generation=generation)
    moved = before.model_copy(update={"generation": generation, "attempt": 0})
    table.write(store, task_key("c", task), moved, row.version if row else None)
    return row.value if row else None


def plan(
    store: Store, generation: int, *tasks: list[TopicPartition], **base: tuple[object, ...]
) -> GenerationPlan:
    """A driver plans what it claimed: ranges [0, 100) of these partitions, task by task."""
    planned = GenerationPlan(
        generation=generation,
        config_version=1,
        tasks=tuple(
            TaskPlan(
                ranges=tuple(
                    PlannedRange(topic=p.topic, partition=p.partition, start=0, end=100) for p in partitions
                )
            )
            for partitions in tasks
        ),
        committed=base.get("committed", ()),
        stale=base.get("stale", ()),
    )
    table.write(store, plan_key("c", generation), planned, None)
    row = table.read(store, task_count_key("c"), TaskCountRecord)
    record = TaskCountRecord(claimed=generation, planned=generation, tasks=len(tasks), config_version=1)
    table.write(store, task_count_key("c"), record, row.version if row else None)
    return planned


def recorded(store: Store, task: int = 0) -> TaskRecord:
    return table.read(store, task_key("c", task), TaskRecord).value


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


# -- the plan in force -------------------------------------------------------------------------------


def test_a_plan_is_in_force_while_its_generation_is_the_newest(store: MemoryStore) -> None:
    """A generation's plan is in force from when it is planned until a newer generation is claimed."""
    assert current_plan(store, "c", 1) is None
    claim(store, 1)
    assert current_plan(store, "c", 1) is None
    planned = plan(store, 1, [P0])
    assert current_plan(store, "c", 1) == planned
    assert current_plan(store, "c", 2) is None
    claim(store, 2)
    assert current_plan(store, "c", 1) is None
    assert current_plan(store, "c", 2) is None


# -- taking over -------------------------------------------------------------------------------------


def test_the_first_attempt_begins_with_the_plans_entries(store: MemoryStore) -> None:
    """take_over: the first attempt's record has the plan's entries of its own partitions, and attempt 1."""
    plan(store, 1, [P0], [P1], committed=(entry(P0, 10, 0), entry(P1, 20, 0), entry(P2, 30, 0)))
    taken = take_over(store, "c", 1, 1)
    assert recorded(store, 1) == TaskRecord(generation=1, attempt=1, entries=(entry(P1, 20, 0),))
    assert taken.ledger.attempt == 1
    assert taken.ledger.committed(P1) == OffsetAndMetadata(20)
    assert taken.ledger.committed(P0) is None
    assert taken.plan == current_plan(store, "c", 1)


def test_a_further_attempt_begins_where_the_one_before_committed(store: MemoryStore) -> None:
    """take_over: attempt + 1; entries newer than the plan's, when an earlier attempt of the generation committed."""
    plan(store, 1, [P0], committed=(entry(P0, 10, 0),))
    first = take_over(store, "c", 1, 0).ledger
    first.commit({P0: OffsetAndMetadata(50)})
    second = take_over(store, "c", 1, 0).ledger
    assert second.attempt == 2
    assert second.committed(P0) == OffsetAndMetadata(50)
    assert recorded(store) == TaskRecord(generation=1, attempt=2, entries=(entry(P0, 50, 1),))


def test_a_further_attempt_fences_the_one_before(store: MemoryStore) -> None:
    """take_over: from then on every write of the earlier attempt fails, for ever; nothing of it stands."""
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


def test_an_older_generation_takes_nothing_over(store: MemoryStore) -> None:
    """take_over: None, nothing written, once a newer generation is claimed or planned."""
    plan(store, 1, [P0])
    claim(store, 2)
    assert take_over(store, "c", 1, 0) is None
    plan(store, 2, [P0])
    assert take_over(store, "c", 1, 0) is None
    assert store.get(task_key("c", 0)) is None


def test_a_record_beyond_ours_is_left_alone(store: MemoryStore) -> None:
    """take_over: None, nothing written, when the record is of a newer generation already."""
    plan(store, 1, [P0])
    fence(store, 0, 2)
    before = recorded(store)
    assert take_over(store, "c", 1, 0) is None
    assert recorded(store) == before


def test_a_generation_claimed_between_the_two_looks(store: MemoryStore) -> None:
    """take_over: the second look closes the race: a generation claimed while the record was taken over is seen."""
    plan(store, 1, [P0])
    lossy = LossyStore(store)

    def claimed_meanwhile() -> None:
        claim(store, 2)

    lossy.faults["write"].append(claimed_meanwhile)
    assert take_over(lossy, "c", 1, 0) is None


def test_a_fence_between_looking_and_taking_over(store: MemoryStore) -> None:
    """take_over: a fence that comes in between is seen: the conflict leads to another look, which abandons."""
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


def test_two_attempts_at_the_same_time(store: MemoryStore) -> None:
    """take_over: of two attempts that look at the same time both get numbers of their own; the later one owns it."""
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


def test_a_lost_answer_does_not_fence_oneself(store: MemoryStore) -> None:
    """take_over, commit: an answer lost after the effect is resolved by the store; the attempt owns its record."""
    plan(store, 1, [P0])
    lossy = LossyStore(store)
    lossy.faults["write"].extend(["after", "after", "before"])
    ledger = take_over(lossy, "c", 1, 0).ledger
    assert ledger.attempt == 1
    ledger.commit({P0: OffsetAndMetadata(1)})
    ledger.commit({P0: OffsetAndMetadata(2)})
    assert recorded(store).entries == (entry(P0, 2, 1),)


# -- fencing -----------------------------------------------------------------------------------------


def test_moving_the_record_fences_its_task(store: MemoryStore) -> None:
    """Fencing: once the record is moved to a newer generation, every write of the task fails, for ever."""
    plan(store, 1, [P0])
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.commit({P0: OffsetAndMetadata(10)})
    claim(store, 2)
    assert fence(store, 0, 2).entries == (entry(P0, 10, 1),)
    with pytest.raises(FencedException):
        ledger.commit({P0: OffsetAndMetadata(20)})
    with pytest.raises(FencedException):
        ledger.prepare({P0: [A]})
    ledger.discarded(P0, [A])
    with pytest.raises(FencedException):
        ledger.flush()
    assert recorded(store) == TaskRecord(generation=2, attempt=0, entries=(entry(P0, 10, 1),))


def test_a_commit_before_the_fence_is_read_by_it(store: MemoryStore) -> None:
    """Fencing: what the task committed before is read by the fence; nothing is lost between the two."""
    plan(store, 1, [P0])
    ledger = take_over(store, "c", 1, 0).ledger
    ledger.prepare({P0: [A]})
    ledger.commit({P0: OffsetAndMetadata(10, publish=[A])})
    assert fence(store, 0, 2).entries == (entry(P0, 10, 1, A),)


def test_a_fenced_record_is_taken_over_from_the_plan(store: MemoryStore) -> None:
    """take_over: a record that was only fenced (attempt 0) gives nothing: the plan has what it said."""
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


def test_an_outage_is_not_taken_for_a_fence(store: MemoryStore) -> None:
    """Commit: a store that does not answer is StoreUnavailable, not FencedException; the ledger shows no change."""
    plan(store, 1, [P0])
    lossy = LossyStore(store, patience=0.02)
    ledger = take_over(lossy, "c", 1, 0).ledger
    lossy.is_down = True
    with pytest.raises(StoreUnavailable):
        ledger.commit({P0: OffsetAndMetadata(1)})
    assert ledger.committed(P0) is None


# -- what a task writes ------------------------------------------------------------------------------


@pytest.fixture
def ledger(store: MemoryStore) -> TaskLedger:
    plan(store, 5, [P0, P1], committed=(entry(P0, 10, 3, C),), stale=(note(P0, A), note(P2, B)))
    return take_over(store, "c", 5, 0).ledger


def test_a_commit_is_one_write_with_its_tokens(store: MemoryStore, ledger: TaskLedger) -> None:
    """Commit: offset, metadata and tokens in one write, which takes the tokens from the notes."""
    ledger.prepare({P1: [Token("x"), Token("y")]})
    assert recorded(store).prepared == (note(P1, Token("x"), Token("y")),)
    ledger.commit({P1: OffsetAndMetadata(7, "m", [Token("x", {"size": 3})])})
    assert recorded(store).prepared == (note(P1, Token("y")),)
    written = Entry.of(P1, OffsetAndMetadata(7, "m", [Token("x", {"size": 3})]), 5)
    assert recorded(store).entries == (entry(P0, 10, 3, C), written)
    assert ledger.prepared(P1) == (Token("y"),)


def test_tokens_to_publish_are_never_overwritten(store: MemoryStore, ledger: TaskLedger) -> None:
    """Commit: one that would overwrite tokens not yet published is refused, and nothing of it is written."""
    before = recorded(store)
    with pytest.raises(
        ConnectException, match="at 20 would overwrite tokens that are committed and not published: c"
    ):
        ledger.commit({P1: OffsetAndMetadata(1), P0: OffsetAndMetadata(20)})
    assert recorded(store) == before
    assert ledger.committed(P1) is None


def test_published_is_durable_with_the_next_write(store: MemoryStore, ledger: TaskLedger) -> None:
    """published: the tokens are gone from the record with the next write, and the entry is this generation's."""
    ledger.published(P0)
    assert ledger.committed(P0) == OffsetAndMetadata(10)
    assert recorded(store).entries == (entry(P0, 10, 3, C),)
    ledger.flush()
    assert recorded(store).entries == (entry(P0, 10, 5),)
    ledger.commit({P0: OffsetAndMetadata(20)})


def test_stale_tokens_are_those_of_the_own_partitions(ledger: TaskLedger) -> None:
    """Stale tokens: a task sees those of its own partitions, as the plan has them."""
    assert ledger.stale(P0) == (A,)
    assert ledger.stale(P1) == ledger.stale(P2) == ()


def test_discarded_is_durable_with_the_next_write(store: MemoryStore, ledger: TaskLedger) -> None:
    """discarded: the plan's stale tokens are named in the record; a further attempt does not see them again."""
    ledger.discarded(P0, [A])
    assert ledger.stale(P0) == ()
    assert recorded(store).discarded == ()
    assert take_over(store, "c", 5, 0).ledger.stale(P0) == (A,), "a crash before the next write: once more"


def test_discarded_is_known_to_a_further_attempt(store: MemoryStore, ledger: TaskLedger) -> None:
    """discarded: once written, a further attempt of the generation does not see the token again."""
    ledger.discarded(P0, [A])
    ledger.flush()
    assert recorded(store).discarded == ("a",)
    assert take_over(store, "c", 5, 0).ledger.stale(P0) == ()


def test_what_an_earlier_attempt_noted_is_stale(store: MemoryStore, ledger: TaskLedger) -> None:
    """Stale tokens: what an earlier attempt noted and did not commit is stale for the next, until it is discarded."""
    ledger.prepare({P1: [B]})
    second = take_over(store, "c", 5, 0).ledger
    assert second.stale(P1) == (B,)
    assert second.prepared(P1) == ()
    second.prepare({P1: [C]})
    assert recorded(store).prepared == (note(P1, B, C),), "still noted, beside the own ones"
    second.discarded(P1, [B])
    second.flush()
    assert recorded(store).prepared == (note(P1, C),)
    assert recorded(store).discarded == (), "only tokens of the plan need naming"
    assert take_over(store, "c", 5, 0).ledger.stale(P1) == (C,)


def test_own_tokens_that_are_discarded_are_noted_no_longer(store: MemoryStore, ledger: TaskLedger) -> None:
    """discarded: a task's own tokens leave the notes."""
    ledger.prepare({P1: [B]})
    ledger.discarded(P1, [B])
    ledger.flush()
    assert recorded(store).prepared == ()
    assert ledger.prepared(P1) == ()


def test_flush_writes_only_what_waits(store: MemoryStore, ledger: TaskLedger) -> None:
    """flush: no write when nothing waits for one."""
    before = store.get(task_key("c", 0)).version
    ledger.flush()
    ledger.published(P0)
    ledger.flush()
    ledger.flush()
    assert store.get(task_key("c", 0)).version != before
    after = store.get(task_key("c", 0)).version
    ledger.flush()
    assert store.get(task_key("c", 0)).version == after


def test_an_id_of_the_plan_used_again_and_committed(store: MemoryStore, ledger: TaskLedger) -> None:
    """discarded: a stale id that is noted again and committed is never discarded, though the plan still lists it."""
    ledger.discarded(P0, [A])
    ledger.published(P0)
    ledger.prepare({P0: [A]})
    assert merged(store, 5).stale[P0].keys() == {"a"}
    ledger.commit({P0: OffsetAndMetadata(20, publish=[A])})
    assert P0 not in merged(store, 5).stale
    ledger.published(P0)
    ledger.flush()
    assert P0 not in merged(store, 5).stale


def test_an_id_that_could_not_be_discarded_used_again_and_committed(
    store: MemoryStore, ledger: TaskLedger
) -> None:
    """discarded: a stale id that is still to be discarded, noted again and committed, is never discarded either."""
    ledger.published(P0)
    ledger.prepare({P1: [B]})
    second = take_over(store, "c", 5, 0).ledger
    second.prepare({P0: [A], P1: [B]})
    second.commit({P0: OffsetAndMetadata(20, publish=[A]), P1: OffsetAndMetadata(1, publish=[B])})
    second.published(P0)
    second.published(P1)
    second.flush()
    left = merged(store, 5).stale
    assert P0 not in left
    assert P1 not in left
    assert second.stale(P0) == second.stale(P1) == ()


# -- merging -----------------------------------------------------------------------------------------


def merged(store: Store, generation: int, tasks: int = 1) -> object:
    base = table.read(store, plan_key("c", generation), GenerationPlan).value
    return merge(base, [recorded(store, task) for task in range(tasks)])


def based(*committed: Entry, stale: tuple[Noted, ...] = ()) -> GenerationPlan:
    return GenerationPlan(generation=5, config_version=1, tasks=(), committed=committed, stale=stale)


def test_merging_nothing() -> None:
    """Merge: without a plan and without records nothing is committed and nothing is stale."""
    assert merge(None, []) == ({}, {})


def test_what_no_task_touched_stays() -> None:
    """Merge: the base is the plan: what no task has touched stays committed, with its tokens."""
    assert merge(based(entry(P0, 10, 3, A)), []).committed == {P0: entry(P0, 10, 3, A)}


def test_the_entry_of_the_highest_generation_wins() -> None:
    """Merge: per partition the entry of the highest generation wins, in whatever order they come."""
    old, new = entry(P0, 99, 4), entry(P0, 50, 6)
    records = [TaskRecord(generation=6, entries=(old,)), TaskRecord(generation=6, entries=(new,))]
    assert merge(based(entry(P0, 10, 5)), records).committed == {P0: new}
    assert merge(based(entry(P0, 10, 5)), records[::-1]).committed == {P0: new}
    assert merge(based(entry(P0, 10, 7)), records).committed == {P0: entry(P0, 10, 7)}


def test_a_later_entry_of_the_same_generation_wins_over_the_plan() -> None:
    """Merge: an entry of the plan's own generation that a task has written since stands over the plan's."""
    record = TaskRecord(generation=5, attempt=1, entries=(entry(P0, 20, 5),))
    assert merge(based(entry(P0, 10, 5)), [record]).committed == {P0: entry(P0, 20, 5)}


def test_published_tokens_do_not_come_back() -> None:
    """Merge: a leftover record that still lists tokens does not bring them back once a newer entry has published."""
    leftover = TaskRecord(generation=5, entries=(entry(P0, 10, 3, A),))
    publisher = TaskRecord(generation=5, attempt=1, entries=(entry(P0, 10, 5),))
    for records in ([leftover, publisher], [publisher, leftover]):
        assert merge(based(entry(P0, 10, 3, A)), records).committed == {P0: entry(P0, 10, 5)}


def test_noted_tokens_that_no_entry_has_are_stale() -> None:
    """Merge: tokens noted by any task and in no entry are stale; those in an entry are not."""
    record = TaskRecord(
        generation=5,
        attempt=1,
        entries=(entry(P0, 20, 5, A),),
        prepared=(note(P0, A, B), note(P1, C)),
    )
    assert merge(based(), [record]).stale == {P0: {"b": B}, P1: {"c": C}}


def test_stale_tokens_are_carried_until_somebody_has_discarded_them() -> None:
    """Merge: stale tokens of the plan are carried on, generation after generation, until discarded."""
    base = based(stale=(note(P0, A, B),))
    assert merge(base, []).stale == {P0: {"a": A, "b": B}}
    record = TaskRecord(generation=5, attempt=1, discarded=("a",))
    assert merge(base, [record]).stale == {P0: {"b": B}}


def test_a_token_that_moved_with_its_partition_is_settled_by_whoever_discarded_it() -> None:
    """Merge: a token noted in one task's record and discarded by another's is not stale."""
    noted_by = TaskRecord(generation=5, prepared=(note(P0, A),))
    discarded_by = TaskRecord(generation=5, attempt=1, discarded=("a",))
    assert merge(based(stale=(note(P0, A),)), [noted_by, discarded_by]).stale == {}


# -- bystanders --------------------------------------------------------------------------------------


def test_reading_commits_before_there_are_any(store: MemoryStore) -> None:
    """committed_offsets: empty for a connector nobody knows, and while its first generation is only claimed."""
    assert committed_offsets(store, "c") == {}
    claim(store, 1)
    assert committed_offsets(store, "c") == {}


def test_reading_commits_while_tasks_write(store: MemoryStore) -> None:
    """committed_offsets: plan and tasks' records merged, while a generation runs and while it is being fenced."""
    plan(store, 1, [P0], [P1], committed=(entry(P0, 10, 0), entry(P1, 20, 0), entry(P2, 30, 0)))
    first = take_over(store, "c", 1, 0).ledger
    first.prepare({P0: [A]})
    first.commit({P0: OffsetAndMetadata(11, "m", [A])})
    expected = {P0: OffsetAndMetadata(11, "m", (A,)), P1: OffsetAndMetadata(20), P2: OffsetAndMetadata(30)}
    assert committed_offsets(store, "c") == expected
    claim(store, 2)
    fence(store, 0, 2)
    assert committed_offsets(store, "c") == expected


def test_reading_commits_by_url(tmp_path: object) -> None:
    """committed_offsets: takes a store's URL too, and writes nothing."""
    url = f"sqlite:///{tmp_path}/state.db"
    store = open_store(url, create=True)
    plan(store, 1, [P0], committed=(entry(P0, 10, 0),))
    keys = store.list("")
    assert committed_offsets(url, "c") == {P0: OffsetAndMetadata(10)}
    assert store.list("") == keys


def test_a_plan_that_is_lost_is_an_error(store: MemoryStore) -> None:
    """read_commits: the absence of the newest plan is an error, never an empty base, and never an endless wait."""
    plan(store, 1, [P0])
    store.delete(plan_key("c", 1), store.get(plan_key("c", 1)).version)
    with pytest.raises(ConnectException, match="has no plan of generation 1, which it says was planned"):
        read_commits(store, "c")


def test_a_generation_planned_while_reading(store: MemoryStore) -> None:
    """read_commits: a generation planned, and the old plan pruned, while it reads makes it read again."""
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


def test_losing_every_answer_once_changes_nothing() -> None:
    """Unknown outcomes: the protocol goes the same way when each single answer is lost once after its effect."""

    class LosesFirst(MemoryStore):
        """Every request takes effect, and its first answer is lost."""

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
    ledger.published(P0)
    ledger.flush()
    claim(store, 2)
    fence(store, 0, 2)
    with pytest.raises(FencedException):
        ledger.commit({P0: OffsetAndMetadata(20)})
    assert recorded(store) == TaskRecord(generation=2, entries=(entry(P0, 10, 1),))
