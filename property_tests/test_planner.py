"""Planner and assignment for random topics, policies and sinks: each record is planned once."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import BatchPolicy, OffsetRange, TopicPartition
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.runtime.planner import Backlog, Decision, Planner, assign, observe, remember

exercised = EXERCISED["the planner"]
MOST_ROUNDS = 200


class Topic:
    """One partition: its records, and the commits of a sink that writes whole batches."""

    def __init__(self, number: int) -> None:
        self.partition = TopicPartition("t", number)
        self.offsets: list[int] = []
        self.end = 0
        self.committed: int | None = None
        self.state: PlannerState | None = None
        self.written: list[int] = []

    def produce(self, count: int, gap: int) -> None:
        self.offsets += range(self.end, self.end + count)
        self.end += count + gap

    def backlog(self, now: float) -> Backlog:
        backlog = Backlog(self.partition, OffsetRange(0, self.end), self.committed, state=self.state)
        self.state = observe(backlog, now)
        return Backlog(self.partition, OffsetRange(0, self.end), self.committed, state=self.state)

    def read(self, planned: RangePlan, size: int | None) -> None:
        rows = self.offsets[bisect_left(self.offsets, planned.start) : bisect_left(self.offsets, planned.end)]
        is_cut = planned.records is not None and len(rows) > planned.records
        rows = rows[: planned.records] if is_cut else rows
        end = rows[-1] + 1 if is_cut else planned.end
        kept = 0 if (planned.due and not is_cut) or size is None else len(rows) % size
        written = rows[: len(rows) - kept]
        self.written += written
        if not kept:
            self.committed = end
        elif written:
            self.committed = written[-1] + 1
        outcome = PartitionOutcome(
            self.partition, self.committed, end, len(rows), kept, end, read_from=planned.start
        )
        self.state = remember(self.state, planned, outcome)


def check(
    decision: Decision, shares: Sequence[Sequence[RangePlan]], topics: Mapping[TopicPartition, Topic]
) -> None:
    planned = [share.topic_partition for shares_of_task in shares for share in shares_of_task]
    assert sorted(planned) == sorted(r.topic_partition for r in decision.ranges), "each range to one task"
    for share in (share for shares_of_task in shares for share in shares_of_task):
        topic = topics[share.topic_partition]
        assert share.start == (topic.committed or 0), "ranges begin at the commit: they never overlap"
        assert share.start < share.end <= topic.end, "never beyond the end, never empty"


policies = st.builds(
    BatchPolicy, max_records=st.none() | st.integers(1, 7), max_wait=st.sampled_from([0.0, 10.0])
)
rounds = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 20), st.sampled_from([0, 0, 1, 9]), st.integers(0, 12)),
    max_size=12,
)


@given(policy=policies, rounds=rounds, max_records=st.integers(1, 30), max_tasks=st.integers(1, 3))
def test_every_record_is_planned_once(
    policy: BatchPolicy, rounds: list[tuple[int, int, int, int]], max_records: int, max_tasks: int
) -> None:
    topics = {TopicPartition("t", number): Topic(number) for number in range(3)}
    planner, now = Planner(policy, max_records), 0.0

    def generation(*, flush: bool = False) -> bool:
        decision = planner.decide([topic.backlog(now) for topic in topics.values()], now, flush=flush)
        shares = [planner.share(share, decision) for share in assign(decision.ranges, max_tasks)]
        check(decision, shares, topics)
        for share in (share for shares_of_task in shares for share in shares_of_task):
            topics[share.topic_partition].read(share, policy.max_records)
        exercised["ranges"] += len(decision.ranges)
        exercised["due"] += sum(planned.due for planned in decision.ranges)
        return bool(decision.ranges)

    for number, count, gap, seconds in rounds:
        topics[TopicPartition("t", number)].produce(count, gap)
        now += seconds
        generation()
    for _ in range(MOST_ROUNDS):
        if not generation(flush=True):
            break
    else:
        raise AssertionError("flushing does not come to an end")
    for topic in topics.values():
        assert topic.written == topic.offsets


@given(rounds=rounds, size=st.integers(1, 7))
def test_only_whole_batches_are_read_before_they_are_due(
    rounds: list[tuple[int, int, int, int]], size: int
) -> None:
    planner = Planner(BatchPolicy(max_records=size, max_wait=None))
    topics = [Topic(number) for number in range(3)]
    for number, count, gap, _ in rounds:
        topics[number].produce(count, gap)
        for _ in range(MOST_ROUNDS):
            backlogs = {topic.partition: topic.backlog(0.0) for topic in topics}
            decision = planner.decide(backlogs.values(), 0.0)
            if not decision.ranges:
                break
            for planned in decision.ranges:
                assert planned.records
                assert planned.records % size == 0
                topics[planned.partition].read(planned, size)
                exercised["whole batches"] += 1
        else:
            raise AssertionError("the same records are read again and again")
    for topic in topics:
        assert topic.written == topic.offsets[: len(topic.written)]
        assert len(topic.written) % size == 0


ranges = st.lists(st.integers(0, 50), max_size=20).map(
    lambda sizes: [RangePlan(topic="t", partition=n, start=0, end=size) for n, size in enumerate(sizes)]
)


@given(ranges=ranges, max_tasks=st.integers(1, 6))
def test_assignments_are_complete_and_balanced(ranges: list[RangePlan], max_tasks: int) -> None:
    tasks = assign(ranges, max_tasks)
    exercised["assignments"] += 1
    assert sorted(share.partition for shares in tasks for share in shares) == [r.partition for r in ranges]
    assert len(tasks) <= max_tasks
    assert all(tasks)
    if tasks:
        loads = [sum(share.end - share.start for share in shares) for shares in tasks]
        assert max(loads) - min(loads) <= max(planned.end for planned in ranges)


@given(ranges=ranges, max_tasks=st.integers(1, 6))
def test_assignments_are_sticky(ranges: list[RangePlan], max_tasks: int) -> None:
    before = assign(ranges, max_tasks)
    previous = {share.topic_partition: task for task, shares in enumerate(before) for share in shares}
    assert assign(ranges, max_tasks, previous) == before
