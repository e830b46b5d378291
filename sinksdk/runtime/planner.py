"""Which offset ranges are worth a generation now. Pure: everything it knows is handed in.

Records wait in the source, not in memory. A partition is read once it has a whole batch, once its
oldest unread record has waited long enough, on an explicit flush, or when something committed still
has to be published or something stale discarded. Offsets have gaps, so the planner never takes their
difference for a number of records where the engine has counted: that is what tails are for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sinksdk.connector import BatchPolicy
from sinksdk.engine import PartitionOutcome
from sinksdk.errors import OffsetOutOfRangeException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.store.records import PlannedRange
from sinksdk.store.reports import PartitionStatus, Seen, Tail

_MOST_SIGHTINGS = 64


class Counted(NamedTuple):
    """Records after the commit that were counted by reading them.

    Args:
        records: how many.
        end: up to which offset.
    """

    records: int
    end: int


@dataclass(frozen=True, slots=True)
class Backlog:
    """One partition as the planner sees it.

    Args:
        partition: which.
        available: what the source holds.
        committed: next offset to read, None when nothing was ever committed.
        unsettled: tokens wait to be published or discarded.
        status: what is remembered of it.
    """

    partition: TopicPartition
    available: OffsetRange
    committed: int | None
    unsettled: bool = False
    status: PartitionStatus | None = None

    @property
    def start(self) -> int:
        """The next offset to read."""
        if self.committed is None:
            return self.available.start
        return max(self.committed, self.available.start)

    @property
    def counted(self) -> Counted:
        """What was counted of the unread records when they were read and kept back."""
        tail = self.status.tail if self.status else None
        if tail is None or tail.committed != self.start or tail.end > self.available.end:
            return Counted(0, self.start)
        return Counted(tail.records, tail.end)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now.

    Args:
        ranges: worth a generation; none: wait.
        due_at: when the first of the others will be due, in seconds since the epoch.
        counted: what is known of each range's records.
    """

    ranges: tuple[PlannedRange, ...]
    due_at: float
    counted: Mapping[TopicPartition, Counted]


@dataclass(frozen=True, slots=True)
class Planner:
    """Decides by a connector's batch policy.

    Args:
        policy: when waiting records are worth reading.
        max_records: most records one task reads in one generation, or one batch of each partition.
        skip_lost: go on where the source no longer has what follows the commit.
    """

    policy: BatchPolicy = field(default_factory=BatchPolicy)
    max_records: int = 50_000_000
    skip_lost: bool = False

    def decide(self, backlogs: Iterable[Backlog], now: float, *, flush: bool = False) -> Decision:
        """Choose ranges.

        Args:
            backlogs: every subscribed partition that may be opened now.
            now: seconds since the epoch.
            flush: everything that is there is due.

        Raises:
            OffsetOutOfRangeException: a commit is outside what the source holds.
        """
        ranges, counted, due_at = [], {}, math.inf
        for backlog in backlogs:
            self._check(backlog)
            moment = self._due_at(backlog)
            planned = self._range(backlog, is_due=flush or now >= moment)
            if planned is not None:
                ranges.append(planned)
                counted[backlog.partition] = backlog.counted
            else:
                due_at = min(due_at, moment)
        return Decision(tuple(ranges), due_at, counted)

    @staticmethod
    def all_of(ranges: Iterable[PlannedRange], backlogs: Iterable[Backlog]) -> Decision:
        """A decision for these ranges, whatever the policy."""
        return Decision(tuple(ranges), math.inf, {b.partition: b.counted for b in backlogs})

    def _check(self, backlog: Backlog) -> None:
        begin, end = backlog.available
        committed = backlog.committed
        if committed is None or begin <= committed <= end:
            return
        if committed > end:
            raise OffsetOutOfRangeException(
                f"{backlog.partition} is committed up to offset {committed}, but the source ends at {end}: "
                f"the topic was deleted and created again, or its newest records were removed; restore it, "
                f"or give the connector another name to start afresh"
            )
        if not self.skip_lost:
            raise OffsetOutOfRangeException(
                f"{backlog.partition} is committed up to offset {committed}, but the source begins at "
                f"{begin}: records in between were removed before they were read; set on.data.loss=skip to "
                f"go on there"
            )

    def _due_at(self, backlog: Backlog) -> float:
        """When what is unread is due by time; never when nothing is."""
        if backlog.available.end <= backlog.start:
            return math.inf
        sightings = backlog.status.seen if backlog.status else ()
        oldest = next((seen.at for seen in sightings if seen.end > backlog.start), math.inf)
        return self.policy.due_at(oldest) if math.isfinite(oldest) else math.inf

    def share(self, ranges: Sequence[PlannedRange], decision: Decision) -> tuple[PlannedRange, ...]:
        """One task's ranges, each cut to its part of what a task may read in one generation.

        At least one batch beyond what was counted before: a range that ends earlier would be read in
        vain, for ever. A cut end is due only where nothing bounds a batch.
        """
        most = self.max_records // max(len(ranges), 1)
        return tuple(
            self._cut(planned, most, decision.counted[planned.topic_partition]) for planned in ranges
        )

    def _cut(self, planned: PlannedRange, most: int, counted: Counted) -> PlannedRange:
        size = self.policy.max_records
        if size is None:
            limit = planned.start + max(most, 1)
        else:
            batches = max(most // size, counted.records // size + 1)
            limit = counted.end + batches * size - counted.records
        if limit >= planned.end:
            return planned
        return planned.model_copy(update={"end": limit, "due": planned.due and size is None})

    def _range(self, backlog: Backlog, *, is_due: bool) -> PlannedRange | None:
        start, end = backlog.start, backlog.available.end
        if end == start or not (is_due or self._whole_batches(backlog)):
            if not backlog.unsettled:
                return None
            end, is_due = start, False
        elif not is_due:
            end = self._end_of_whole_batches(backlog)
        topic, partition = backlog.partition
        return PlannedRange(topic=topic, partition=partition, start=start, end=end, due=is_due)

    def _whole_batches(self, backlog: Backlog) -> int:
        """At most so many whole batches are there; none where everything was read and kept back before."""
        counted = backlog.counted
        if self.policy.max_records is None or counted.end == backlog.available.end:
            return 0
        return (counted.records + backlog.available.end - counted.end) // self.policy.max_records

    def _end_of_whole_batches(self, backlog: Backlog) -> int:
        """Where they end if there are no more gaps."""
        counted = backlog.counted
        wanted = self._whole_batches(backlog) * (self.policy.max_records or 1)
        # A sink may have kept back more than a batch: then what is new is read anyhow.
        return min(max(counted.end + wanted - counted.records, counted.end + 1), backlog.available.end)


def observe(backlog: Backlog, now: float) -> PartitionStatus:
    """Remember when records were first seen: a new end is a sighting; committed ones are forgotten."""
    topic, partition = backlog.partition
    status = backlog.status or PartitionStatus(topic=topic, partition=partition)
    # A sighting in the future was made by a clock that has been set back since.
    seen = [Seen(end=s.end, at=min(s.at, now)) for s in status.seen if s.end > backlog.start]
    end = backlog.available.end
    if end > backlog.start and (not seen or end > seen[-1].end):
        if len(seen) == _MOST_SIGHTINGS:  # the older half merges: due a little earlier, never later
            older = seen[: _MOST_SIGHTINGS // 2]
            seen = [Seen(end=older[-1].end, at=older[0].at), *seen[_MOST_SIGHTINGS // 2 :]]
        seen.append(Seen(end=end, at=now))
    return status.model_copy(update={"seen": tuple(seen), "end": end})


def remember(
    status: PartitionStatus | None, planned: PlannedRange, outcome: PartitionOutcome
) -> PartitionStatus:
    """What the next generation has to know of this one: the tail, and how often in a row it failed."""
    status = status or PartitionStatus(topic=planned.topic, partition=planned.partition)
    tail = None
    committed = planned.start if outcome.committed is None else outcome.committed
    if outcome.tail and not outcome.failure:
        tail = Tail(committed=committed, end=outcome.read_to, records=outcome.tail)
    made_progress = committed > planned.start
    failures = 0
    if outcome.failure:
        failures = 1 if made_progress else status.failures + 1
    return status.model_copy(
        update={
            "tail": tail,
            "failures": failures,
            "error": outcome.failure.message if outcome.failure else None,
            "trace": outcome.failure.trace if outcome.failure else None,
        }
    )
