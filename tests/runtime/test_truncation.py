"""A log lost its tail, by unclean leader election or a restored broker, and has grown again (KIP-320)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sinksdk import OffsetAndMetadata, OffsetOutOfRangeException, OffsetRange, RetriableException, Token
from sinksdk.control.herder import Herder
from sinksdk.errors import MissingSourceTopicException
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.planner import LostTail
from sinksdk.runtime.source_monitor import TruncationCheck
from sinksdk.store import committed_offsets, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.records import PartitionCommit, TaskPlan
from sinksdk.topics.base import Partitions, Position, Snapshot
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import P0, P1, Source, Task, driver


class Log(Source):
    def __init__(self, ends: Mapping[TopicPartition, int]) -> None:
        super().__init__(ends)
        self.epochs = dict.fromkeys(ends, 3)
        self.begins: dict[TopicPartition, dict[int, int]] = {p: {3: 0} for p in ends}
        self.asked: list[dict[TopicPartition, Position]] = []
        self.problems: list[Exception] = []

    def partitions(self, subscription: object) -> Partitions:
        return Partitions(super().partitions(subscription), (), self.epochs)

    def topic_ids(self, topics: object) -> dict[str, str]:
        return {"t": "id"}

    def elect(self, partition: TopicPartition, loses_from: int | None = None) -> None:
        if loses_from is not None:
            self.ends[partition] = loses_from
        self.epochs[partition] += 1
        self.begins[partition][self.epochs[partition]] = self.ends[partition]

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int | None]:
        self.asked.append(dict(positions))
        if self.problems:
            raise self.problems.pop(0)
        found = dict[TopicPartition, int | None]()
        for partition, (offset, epoch) in positions.items():
            ends = [begin for number, begin in self.begins[partition].items() if number > epoch]
            if epoch not in self.begins[partition]:
                found[partition] = None
            elif ends and min(ends) < offset:
                found[partition] = min(ends)
        return found


def run(store: MemoryStore, log: Log, **settings: object) -> list[tuple[int, int]]:
    made, launcher, _ = driver(log, Task, store=store, **settings)
    made.run(until_caught_up=True)
    ranges = [r for plan in launcher.plans for task in plan.tasks for r in task.ranges]
    return [(r.start, r.end) for r in ranges if r.topic_partition == P0 and r.start < r.end]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def test_the_leader_epoch_is_kept_with_the_commit(store: MemoryStore) -> None:
    run(store, Log({P0: 10}))
    entry = Generations(store, "c").claim().committed[P0]

    assert (entry.offset, entry.leader_epoch) == (10, 3)


def test_a_log_that_lost_its_tail_and_grew_beyond_the_commit_is_an_error(store: MemoryStore) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0, loses_from=60)
    log.ends[P0] = 150
    for _ in range(2):
        with pytest.raises(
            OffsetOutOfRangeException,
            match=r"t-0 is committed up to offset 100, but .* lost records .* from offset 60 on it has new records, "
            r"which were not read; set on.data.loss=skip to continue at 100 .*offsets alter NAME t-0=60'",
        ):
            run(store, log)
    assert committed_offsets(store, "c")[P0].offset == 100


def test_a_log_without_the_epoch_of_the_commit_is_an_error(store: MemoryStore) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.epochs[P0], log.begins[P0] = 2, {2: 0}
    log.ends[P0] = 150
    with pytest.raises(OffsetOutOfRangeException, match="from an unknown offset on it has new records"):
        run(store, log)


@pytest.mark.parametrize("end", [150, 100])
def test_with_skip_a_truncated_log_is_read_from_the_commit(
    store: MemoryStore, end: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0, loses_from=60)
    log.ends[P0] = end
    assert run(store, log, **{"on.data.loss": "skip"}) == ([(100, 150)] if end == 150 else [])
    said = [record.getMessage() for record in caplog.records if "has lost its records" in record.getMessage()]
    assert len(said) == 1
    assert "t-0: the source has lost its records from offset 60 on" in said[0]
    assert "(40 offsets; on.data.loss=skip)" in said[0]
    log.ends[P0] = 200
    assert run(store, log) == [(150, 200)] if end == 150 else True


def test_a_loss_from_an_unknown_offset_on_is_counted(store: MemoryStore) -> None:
    # Regression: the loss was logged, but missing from the metric.
    log = Log({P0: 100})
    run(store, log)
    log.epochs[P0], log.begins[P0] = 2, {2: 0}
    log.ends[P0] = 150

    assert run(store, log, **{"on.data.loss": "skip"}) == [(100, 150)]
    assert Herder(store).info("c").partitions[0].lost_offsets == 1


def test_with_skip_a_log_that_ends_below_the_commit_is_awaited(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0, loses_from=60)
    assert run(store, log, **{"on.data.loss": "skip"}) == []
    assert "has lost its records from offset 60 on" in caplog.text
    log.ends[P0] = 130
    assert run(store, log, **{"on.data.loss": "skip"}) == [(100, 130)]


def test_a_log_that_ends_below_the_commit_fails_by_default(store: MemoryStore) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0, loses_from=60)
    with pytest.raises(
        MissingSourceTopicException,
        match="committed up to offset 100, but the end offset of the source is 60",
    ):
        run(store, log, **{"missing.topic.grace.ms": "0"})


def test_a_new_leader_with_all_records_is_queried_once(store: MemoryStore) -> None:
    log = Log({P0: 100, P1: 5})
    run(store, log)
    log.elect(P0)
    log.ends[P0] = 120
    assert run(store, log) == [(100, 120)]
    assert log.asked == [{P0: Position(100, 3)}]
    log.ends[P0] = 140
    run(store, log)
    assert len(log.asked) == 1


def test_a_check_without_a_response_is_repeated_before_planning(store: MemoryStore) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0)
    log.ends[P0] = 110
    log.problems = [RetriableException("no response")]
    assert run(store, log) == [(100, 110)]
    assert len(log.asked) == 2


def entry(offset: int, epoch: int | None) -> PartitionCommit:
    return PartitionCommit.of(P0, OffsetAndMetadata(offset), 1, leader_epoch=epoch)


def snapshot(epoch: int | None, extent: OffsetRange = OffsetRange(0, 150)) -> Snapshot:  # noqa: B008 - immutable
    return Snapshot(0.0, {P0: extent}, epochs={} if epoch is None else {P0: epoch})


def test_only_commits_of_another_epoch_are_compared() -> None:
    # Nothing is compared for commits without an epoch, or for a commit and leader that were compared before.
    # A loss that was found stays known.
    log = Log({P0: 150})
    check = TruncationCheck(log)
    for committed, now in ((entry(100, None), 4), (entry(100, 4), 4), (entry(100, 3), None)):
        assert check.of({P0: committed}, snapshot(now)) == {}
    assert check.of({P0: entry(100, 3)}, snapshot(4, OffsetRange(120, 150))) == {}
    assert log.asked == []
    log.begins[P0][4] = 60
    for _ in range(3):
        assert check.of({P0: entry(100, 3)}, snapshot(4)) == {P0: LostTail(60)}
    assert len(log.asked) == 1
    assert check.of({P0: entry(100, 3)}, snapshot(5)) == {P0: LostTail(60)}
    assert check.of({P0: entry(150, 5)}, snapshot(5)) == {}
    assert len(log.asked) == 2


def test_commits_keep_their_epoch_through_publishing_withdrawing_and_repeating(store: MemoryStore) -> None:
    # A commit keeps its epoch if no records were read for it, at the same offset or below it; a commit of new
    # records has the epoch of its plan.
    generations = Generations(store, "c")

    def task(start: int, epoch: int | None) -> RangePlan:
        return RangePlan(topic=P0.topic, partition=0, start=start, end=start + 10, leader_epoch=epoch)

    def epoch_after(start: int, epoch: int | None, commit: int) -> int | None:
        plan = generations.plan(generations.claim(), [TaskPlan(ranges=(task(start, epoch),))], 1)
        taken = take_over(store, "c", plan.generation, 0)
        assert taken is not None
        token = Token(f"{plan.generation}")
        taken.ledger.prepare({P0: [token]})
        taken.ledger.commit({P0: OffsetAndMetadata(commit, publish=(token,))})
        taken.ledger.mark_published(P0)
        taken.ledger.flush()
        return Generations(store, "c").claim().committed[P0].leader_epoch

    assert epoch_after(0, 3, 10) == 3
    generations = Generations(store, "c")
    assert epoch_after(10, None, 10) == 3
    generations = Generations(store, "c")
    assert epoch_after(10, None, 20) is None
    generations = Generations(store, "c")
    assert epoch_after(20, 5, 25) == 5
    generations = Generations(store, "c")
    plan = generations.plan(generations.claim(), [TaskPlan(ranges=(task(25, 6),))], 1)
    taken = take_over(store, "c", plan.generation, 0)
    assert taken is not None
    taken.ledger.withdraw(P0, OffsetAndMetadata(22), ())
    assert Generations(store, "c").claim().committed[P0].leader_epoch == 5


def test_an_operators_offset_is_compared_with_no_epoch(store: MemoryStore) -> None:
    log = Log({P0: 100})
    run(store, log)
    log.elect(P0, loses_from=60)
    log.ends[P0] = 150
    generations = Generations(store, "c")
    generations.alter(generations.claim(), {P0: 60}, 1, {})

    assert run(store, log) == [(60, 150)]
    assert Generations(store, "c").claim().committed[P0].leader_epoch == 4
