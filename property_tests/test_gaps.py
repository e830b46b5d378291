"""Random gaps in offsets: files take few jobs, and records are hardly ever read twice."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from property_tests.exercised import EXERCISED
from sinksdk import BatchPolicy, OffsetRange, TopicPartition
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.runtime.planner import Backlog, Planner, observe, remember
from tests.helpers.depth import DEPTH
from tests.helpers.tiers import extended_after

exercised = EXERCISED["gaps"]
PARTITION = TopicPartition("t", 0)
SIZE = 500  # records per file
HOUR = 3600.0

Stretch = tuple[int, int]


class Gapped:
    """A growing partition, its planner, and a sink that writes files of exactly ``SIZE`` records."""

    def __init__(self, stretches: Sequence[Stretch], most: int = 50_000_000) -> None:
        steps = np.repeat([every for _, every in stretches], [records for records, _ in stretches])
        ends = np.cumsum(steps)
        self.offsets = (ends - steps).tolist()
        self.last = int(ends[-1])
        self.planner = Planner(BatchPolicy(max_records=SIZE, max_wait=None), most)
        self.state: PlannerState | None = None
        self.committed: int | None = None
        self.end, self.now = 0, 0.0
        self.jobs = self.read = self.files = 0

    def grow(self, looks: int) -> None:
        step = max(self.last // looks, 1)
        while self.end < self.last:
            self.end = min(self.end + step, self.last)
            self.now += 1.0
            self.look()

    def rest(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now += 60.0
            self.look()

    def look(self) -> None:
        while True:
            available = OffsetRange(0, self.end)
            self.state = observe(Backlog(PARTITION, available, self.committed, state=self.state), self.now)
            backlog = Backlog(PARTITION, available, self.committed, state=self.state)
            decision = self.planner.decide([backlog], self.now)
            if not decision.ranges:
                return
            [planned] = self.planner.share(decision.ranges, decision)
            self._run(planned)

    def _run(self, planned: RangePlan) -> None:
        first, behind = (bisect_left(self.offsets, o) for o in planned.offsets)
        there = self.offsets[first:behind]
        assert planned.records is not None
        taken = there[: planned.records]
        position = taken[-1] + 1 if len(taken) < len(there) else planned.end
        kept = len(taken) % SIZE
        if not kept:
            self.committed = position
        elif len(taken) > kept:
            self.committed = taken[-kept - 1] + 1
        self.jobs += 1
        self.read += len(taken)
        self.files += len(taken) // SIZE
        outcome = PartitionOutcome(
            PARTITION, self.committed, position, len(taken), kept, position, read_from=planned.start
        )
        self.state = remember(self.state, planned, outcome)
        exercised["jobs"] += 1
        exercised["read in vain"] += bool(kept)
        exercised["several files"] += len(taken) >= 2 * SIZE


@pytest.mark.parametrize("every", extended_after(2, [2, 100, 1, 3, 10, 30, 300, 1_000]))
def test_even_gaps_cost_at_most_three_jobs_per_file_and_hardly_any_record_twice(every: int) -> None:
    partition = Gapped([(20 * SIZE, every)])
    partition.grow(looks=400)
    partition.rest(120.0)

    assert partition.files == 20
    assert partition.jobs <= 3 * 20
    assert partition.read <= 1.5 * 20 * SIZE
    if every == 1:
        assert (partition.jobs, partition.read) == (20, 20 * SIZE)


densities = st.sampled_from([1, 1, 2, 3, 10, 30, 100, 300, 1_000])
stretches = st.lists(st.tuples(st.integers(1, 3 * SIZE), densities), min_size=1, max_size=6)


@pytest.mark.extended
@settings(max_examples=max(DEPTH.examples // 4, 50))
@given(stretches=stretches, looks=st.integers(50, 600), most=st.sampled_from([SIZE, 3 * SIZE, 50_000_000]))
# The planner waited for more records than it then put into the range.
@example(stretches=[(941, 1), (3, 1000)], looks=50, most=SIZE)
# The job read the records of nine files, and completed none.
@example(stretches=[(989, 1), (8, 1000)], looks=600, most=SIZE)
def test_changing_gaps_cost_at_most_three_jobs_per_file_and_half_as_many_records_again(
    stretches: list[Stretch], looks: int, most: int
) -> None:
    records = sum(count for count, _ in stretches)
    partition = Gapped(stretches * (20 * SIZE // records + 1), most)
    partition.grow(looks)

    assert partition.jobs <= 3 * partition.files + 6
    assert partition.read <= 1.5 * partition.files * SIZE + 3 * SIZE
    partition.rest(3 * HOUR)
    assert partition.files == len(partition.offsets) // SIZE, (
        "what is a file is written, whatever was estimated"
    )


@pytest.mark.parametrize("every", extended_after(1, [10, 2, 100]))
def test_dense_records_after_sparse_ones_do_not_wait_for_the_estimate(every: int) -> None:
    """After one wrong estimate, each generation reads the records of one file."""
    partition = Gapped([(5 * SIZE, every), (100 * SIZE, 1)])
    partition.grow(looks=(5 * every + 100) * 5)

    assert partition.jobs >= 50
