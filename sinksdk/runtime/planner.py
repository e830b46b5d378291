"""Decides which offset ranges the next generation reads. Pure, without I/O."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sinksdk.connector import BatchPolicy
from sinksdk.errors import OffsetOutOfRangeException
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import PlannerState, RangePlan, Seen, Tail
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.store.records import TaskPlan

_MOST_SIGHTINGS = 64
# An estimate of records per offset is reduced by this share of its distance from 1.
_CAUTION = 0.15
# This many times the estimated offsets are planned, because the estimate may be a little too high.
_GENEROUS = 17 / 16
_REPAID = 0.4  # records that may be read without result for each committed one
_MOST_OWED = 16  # batches that the planner waits for before a read
# A partition is read once its unread offsets are this multiple of the counted ones.
_STRIDE = 16
# A read that is expected to find less than this share of a batch costs little.
_CHEAP = 0.25
# Seconds without new records until a partition is read: the first if a batch is likely, the second if one is
# possible.
_AT_REST, _LONG_AT_REST = 10.0, 60.0
# If newer offsets are at least this share of the offsets read, they alone determine the density.
_NOTICEABLE = 0.1
_SAME = 1 / 32  # densities that differ by less are equal


class LostTail(NamedTuple):
    """A log has lost records below the commit, from offset ``since`` on (None: unknown)."""

    since: int | None


@dataclass(frozen=True, slots=True)
class Backlog:
    partition: TopicPartition
    available: OffsetRange
    # None: nothing was ever committed.
    committed: int | None
    # The partition has tokens to publish or discard.
    unsettled: bool = False
    state: PlannerState | None = None
    lost_tail: LostTail | None = None

    @property
    def start(self) -> int:
        if self.committed is None:
            return self.available.start
        return max(self.committed, self.available.start)

    @property
    def _tail(self) -> Tail | None:
        tail = self.state.tail if self.state else None
        is_stale = tail is None or tail.committed != self.start or tail.end > self.available.end
        return None if is_stale else tail

    @property
    def counted(self) -> int:
        """Number of unread records counted by an earlier read that did not commit them."""
        return tail.records if (tail := self._tail) else 0

    @property
    def counted_to(self) -> int:
        return tail.end if (tail := self._tail) else self.start

    @property
    def uncounted(self) -> int:
        return self.available.end - self.counted_to

    @property
    def density(self) -> float:
        """Records per offset, as read lately: 1 before the first read."""
        # Offsets have gaps (transaction markers, compacted records), and transforms make several records of
        # one. Too high an estimate is expensive, because all records since the commit are read again; one too
        # low costs only time.
        return (self.state.density if self.state else None) or 1.0

    @property
    def likely_density(self) -> float:
        # The estimate stays as it is if each offset has one record, because then it is exact.
        return self.density * (1 - _CAUTION * min(abs(1 - self.density), 1.0))

    @property
    def possible(self) -> int:
        """Maximum number of unread records, if a transform makes no more of each than it did lately."""
        return self.counted + math.ceil(self.uncounted * max(self.density, 1.0))


@dataclass(frozen=True, slots=True)
class Decision:
    ranges: tuple[RangePlan, ...]
    # When the first of the other partitions is due, in seconds since the epoch.
    due_at: float
    backlogs: Mapping[TopicPartition, Backlog]


@dataclass(frozen=True, slots=True)
class Planner:
    """Decides by a connector's batch policy: records wait in the source until a batch is whole or due."""

    policy: BatchPolicy = field(default_factory=BatchPolicy)
    # Maximum number of records of one task in one generation. A task reads one batch of each partition even
    # if that is more.
    max_records: int = 50_000_000
    skip_lost: bool = False

    def decide(self, backlogs: Iterable[Backlog], now: float, *, flush: bool = False) -> Decision:
        ranges, chosen, due_at = [], {}, math.inf
        for backlog in backlogs:
            self._check(backlog)
            backlog_due_at = self._due_at(backlog)
            planned = self._range(backlog, now, is_due=flush or now >= backlog_due_at)
            if planned is not None:
                retry = backlog.state.retry if backlog.state else None
                ranges.append(planned.model_copy(update={"retry": retry}) if retry else planned)
                chosen[backlog.partition] = backlog
            else:
                due_at = min(due_at, backlog_due_at, self._rested_at(backlog))
        return Decision(tuple(ranges), due_at, chosen)

    def _check(self, backlog: Backlog) -> None:
        begin, end = backlog.available
        committed = backlog.committed
        if backlog.lost_tail is not None:
            if self.skip_lost:
                return
            since = backlog.lost_tail.since
            lost = f"from offset {since} on" if since is not None else "from an unknown offset on"
            raise OffsetOutOfRangeException(
                f"{backlog.partition} is committed up to offset {committed}, but the source has lost records "
                f"below it since (an unclean leader election, or a broker restored from a copy): {lost} it "
                f"has new records, which were not read; set on.data.loss=skip to continue at {committed} "
                f"without them, or stop the connector and alter its offsets ('sinksdk offsets alter NAME "
                f"{backlog.partition}={committed if since is None else since}') to read them"
            )
        if committed is None or begin <= committed <= end:
            return
        if committed > end:
            raise OffsetOutOfRangeException(
                f"{backlog.partition} is committed up to offset {committed}, but the end offset of the "
                f"source is {end}: the topic was deleted and created again, or its newest records were "
                f"removed; restore it, or give the connector another name to start from scratch"
            )
        if not self.skip_lost:
            raise OffsetOutOfRangeException(
                f"{backlog.partition} is committed up to offset {committed}, but the first offset of the "
                f"source is {begin}: the records between were removed before they were read; set "
                f"on.data.loss=skip to continue at {begin}"
            )

    def _due_at(self, backlog: Backlog) -> float:
        if backlog.available.end <= backlog.start:
            return math.inf
        sightings = backlog.state.seen if backlog.state else ()
        oldest = next((seen.at for seen in sightings if seen.end > backlog.start), math.inf)
        return self.policy.due_at(oldest) if math.isfinite(oldest) else math.inf

    def share(
        self, ranges: Sequence[RangePlan], decision: Decision, most: float = math.inf
    ) -> tuple[RangePlan, ...]:
        left, parts = int(min(self.max_records, most)), dict[TopicPartition, int]()
        # If a short range needs less than its share of the limit, longer ranges share the rest.
        for others, planned in enumerate(sorted(ranges, key=_length)):
            part = left // (len(ranges) - others)
            parts[planned.topic_partition] = part
            left -= min(_length(planned), part)
        return tuple(
            self._cut(planned, parts[planned.topic_partition], decision.backlogs[planned.topic_partition])
            for planned in ranges
        )

    def _cut(self, planned: RangePlan, most: int, backlog: Backlog) -> RangePlan:
        size = self.policy.max_records
        if size is None:
            limit = planned.start + max(most, 1)
            return planned if limit >= planned.end else planned.model_copy(update={"end": limit})
        if planned.start == planned.end:
            return planned
        # A range must end beyond the earlier count: a shorter one would always be read without result.
        batches = max(most // size, backlog.counted // size + 1)
        possible = backlog.possible
        if min(possible, planned.records or possible) <= batches * size:
            return planned
        # The extra batches make up for an estimate that was too high before. Records beyond a task's share
        # are not delivered.
        cut = self._batches(backlog, max(batches, self._owed(backlog, size)))
        # A range with fewer records is read to its end: its last commit is still a closing one.
        is_due = planned.due and cut.end == planned.end
        return cut.model_copy(update={"records": batches * size, "due": is_due, "retry": planned.retry})

    def _range(self, backlog: Backlog, now: float, *, is_due: bool) -> RangePlan | None:
        start, end = backlog.start, backlog.available.end
        if is_due and start < end:
            return RangePlan.of(backlog.partition, start, end, due=True)
        if batches := self._available_batches(backlog, now):
            return self._batches(backlog, batches)
        if backlog.unsettled:
            return RangePlan.of(backlog.partition, start, start)
        return None

    def _batches(self, backlog: Backlog, batches: int) -> RangePlan:
        # The number of offsets at least doubles if the estimate was wrong.
        counted_to, records = backlog.counted_to, batches * (self.policy.max_records or 1)
        offsets = math.ceil((records - backlog.counted) / backlog.likely_density * _GENEROUS)
        seen = counted_to - backlog.start
        end = min(counted_to + max(offsets, seen, 1), backlog.available.end)
        return RangePlan.of(backlog.partition, backlog.start, end, records=records)

    def _available_batches(self, backlog: Backlog, now: float) -> int:
        size, counted = self.policy.max_records, backlog.counted
        possible = backlog.possible
        if size is None or backlog.uncounted <= 0 or possible < size:
            return 0
        likely = counted + backlog.uncounted * backlog.likely_density
        if likely >= self._wanted(backlog, size):
            return max(int(likely / size), 1)
        if now >= self._rested_at(backlog) or self._is_worth_a_read(backlog, size):
            return possible // size
        return 0

    def _owed(self, backlog: Backlog, size: int) -> int:
        # The planner waits for so many batches that at most half as many records are read without result as
        # are committed.
        wasted = backlog.state.in_vain if backlog.state else 0
        return min(max(math.ceil(2 * wasted / size), 1), _MOST_OWED)

    def _wanted(self, backlog: Backlog, size: int) -> int:
        # A sink that has kept back a whole batch gets twice as many records.
        counted = backlog.counted
        return max(self._owed(backlog, size) * size, 2 * counted if counted >= size else 0)

    def _is_worth_a_read(self, backlog: Backlog, size: int) -> bool:
        # If wide gaps have ended, waiting for the estimate would take very long: a read counts the records
        # instead.
        counted_to, span = backlog.counted_to, backlog.available.end - backlog.start
        read = max(counted_to - backlog.start, size)
        expected = backlog.counted + backlog.uncounted * backlog.density
        if expected > _CHEAP * size:
            return span >= _STRIDE * read
        missing = self._wanted(backlog, size) - backlog.counted
        needed = counted_to - backlog.start + missing / backlog.likely_density
        return needed > _STRIDE * read and span >= math.sqrt(needed * read)

    def _rested_at(self, backlog: Backlog) -> float:
        size, counted = self.policy.max_records, backlog.counted
        sightings = backlog.state.seen if backlog.state else ()
        if size is None or not sightings or not backlog.uncounted or backlog.possible < size:
            return math.inf
        # Reads without result delay the next one, which may have no result either.
        is_likely = counted + backlog.uncounted * backlog.density >= size
        patience = _AT_REST if is_likely else _LONG_AT_REST
        return sightings[-1].at + patience * 2.0 ** min(self._owed(backlog, size) - 1, 6)


def _length(planned: RangePlan) -> int:
    return planned.end - planned.start


def observe(backlog: Backlog, now: float) -> PlannerState:
    topic, partition = backlog.partition
    status = backlog.state or PlannerState(topic=topic, partition=partition)
    # A timestamp in the future comes from a clock that was set back later.
    seen = [Seen(end=s.end, at=min(s.at, now)) for s in status.seen if s.end > backlog.start]
    end = backlog.available.end
    if end > backlog.start and (not seen or end > seen[-1].end):
        # Merge the older half: the partition is due a little earlier, never later.
        if len(seen) == _MOST_SIGHTINGS:
            older = seen[: _MOST_SIGHTINGS // 2]
            seen = [Seen(end=older[-1].end, at=older[0].at), *seen[_MOST_SIGHTINGS // 2 :]]
        seen.append(Seen(end=end, at=now))
    if end == status.end and tuple(seen) == status.seen:
        return status  # most polls change nothing, and need no copy
    return status.model_copy(update={"seen": tuple(seen), "end": end})


def remember(status: PlannerState | None, planned: RangePlan, outcome: PartitionOutcome) -> PlannerState:
    status = status or PlannerState(topic=planned.topic, partition=planned.partition)
    if outcome.failure:
        return status.model_copy(update={"tail": None})
    tail = None
    if outcome.tail:
        committed = planned.start if outcome.committed is None else outcome.committed
        tail = Tail(committed=committed, end=outcome.read_to, records=outcome.tail)
    wasted = status.in_vain + outcome.tail - int(_REPAID * (outcome.records - outcome.tail))
    density = _learned(status, planned, outcome)
    return status.model_copy(update={"tail": tail, "density": density, "in_vain": max(0, wasted)})


def _learned(status: PlannerState, planned: RangePlan, outcome: PartitionOutcome) -> float | None:
    # A lower density counts at once, because too high an estimate is expensive; a higher one by half the
    # difference. A read without records changes nothing, because later offsets may differ.
    start = planned.start if outcome.read_from is None else outcome.read_from
    records, offsets = outcome.records, outcome.read_to - start
    before, tail = status.density, status.tail
    if tail is not None and tail.committed == start:  # the outcome includes the records counted before
        newer = outcome.read_to - tail.end
        if newer >= _NOTICEABLE * offsets and records > tail.records:
            records, offsets = records - tail.records, newer
    if not records or offsets <= 0:
        return before
    found = records / offsets
    if before is None or found <= before or found - before <= _SAME:
        return found
    return (before + found) / 2


def assign(
    ranges: Iterable[RangePlan],
    max_tasks: int,
    previous: Mapping[TopicPartition, int] | None = None,
) -> list[tuple[RangePlan, ...]]:
    # The largest range goes to the least loaded task; among equal ones to its previous task, so that caches
    # stay useful.
    ordered = sorted(ranges, key=lambda planned: (planned.start - planned.end, planned.topic_partition))
    tasks: list[list[RangePlan]] = [[] for _ in range(min(max_tasks, len(ordered)))]
    # The load of a task is its number of offsets, then its number of ranges, because opening a range without
    # records takes time, too.
    loads = [(0, 0)] * len(tasks)
    for planned in ordered:
        least = min(loads)
        before = (previous or {}).get(planned.topic_partition, -1)
        stays = 0 <= before < len(tasks) and loads[before] == least
        task = before if stays else loads.index(least)
        tasks[task].append(planned)
        loads[task] = (loads[task][0] + planned.end - planned.start, loads[task][1] + 1)
    return [tuple(sorted(shares, key=lambda planned: planned.topic_partition)) for shares in tasks if shares]


# The least number of records per task, so that a generation's fixed costs (Spark's queue, opening and
# committing a sink) never outweigh the reading.
LEAST: Final = 200_000

# Largest factor from one generation to the next: a job's first seconds are not representative.
_GROWTH: Final = 8


class Turns:
    """Number of records per generation for a duration of about ``seconds``; 0: no limit."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.most = float(LEAST) if seconds else math.inf

    def record(self, seconds: float, *, is_cut: bool) -> None:
        # A short generation that read all records does not show how many it could have read.
        if not self._seconds or (seconds <= self._seconds and not is_cut):
            return
        factor = min(self._seconds / max(seconds, 0.001), _GROWTH)
        self.most = max(self.most * factor, LEAST)


class GenerationPlanner:
    def __init__(self, planner: Planner, seconds: float) -> None:
        self._planner = planner
        self._turns = Turns(seconds)
        self._is_flushing = False
        self._is_cut = False

    def flush(self) -> None:
        self._is_flushing = True

    def decide(self, backlogs: Iterable[Backlog], now: float, *, flush: bool) -> Decision:
        decision = self._planner.decide(backlogs, now, flush=flush or self._is_flushing)
        if not decision.ranges:
            self._is_flushing = False
        return decision

    def tasks(
        self,
        decision: Decision,
        configs: Sequence[Mapping[str, str]],
        previous: Mapping[TopicPartition, int],
    ) -> list[TaskPlan]:
        shares = assign(decision.ranges, len(configs), previous)
        tasks = [
            TaskPlan(ranges=self._planner.share(share, decision, self._turns.most), config=dict(own))
            for share, own in zip(shares, configs, strict=False)
        ]
        uncut = {planned.topic_partition: planned for planned in decision.ranges}
        self._is_cut = any(r is not uncut[r.topic_partition] for task in tasks for r in task.ranges)
        self._is_flushing = self._is_flushing and self._is_cut
        return tasks

    def ended(self, seconds: float) -> None:
        self._turns.record(seconds, is_cut=self._is_cut)
