"""The backlog of each partition: from the source, the commits and the remembered state."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field, replace

from sinksdk.config import ConnectorConfig
from sinksdk.control.progress import ProgressTracker
from sinksdk.control.status import StatusKeeper
from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.model.measures import LOST
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.runtime.backoff import Backoff
from sinksdk.runtime.planner import Backlog, LostTail, observe
from sinksdk.store.generations import Claim
from sinksdk.store.records import PartitionCommit
from sinksdk.support.threads import Background, in_a_thread
from sinksdk.topics import Source

log = logging.getLogger(__name__)

_SHOWN = 3  # tokens named in a status


@dataclass(slots=True, eq=False, repr=False)
class PartitionLag:
    config: ConnectorConfig
    _: KW_ONLY
    status: StatusKeeper
    backoff: Backoff
    tracker: ProgressTracker
    clock: WallClock
    is_fixed: bool
    _lost: dict[TopicPartition, OffsetRange] = field(default_factory=dict, init=False)
    _counted: Counter[TopicPartition] = field(default_factory=Counter, init=False)
    _tails: Mapping[TopicPartition, LostTail] = field(default_factory=dict, init=False)
    _passed_over: set[tuple[TopicPartition, int]] = field(default_factory=set, init=False)

    def of(
        self,
        claim: Claim,
        available: dict[TopicPartition, OffsetRange],
        lost: Mapping[TopicPartition, LostTail] | None = None,
    ) -> list[Backlog]:
        self._tails = {**_ending_before(claim, available), **(lost or {})}
        if self.is_fixed or self._tails:
            available = {
                p: _at_least(offsets, claim.committed.get(p))
                if self.is_fixed or p in self._tails
                else offsets
                for p, offsets in available.items()
            }
        # The topics of these partitions are missing, or no longer subscribed.
        for partition in claim.all_unsettled() - available.keys():
            offset = claim.committed[partition].offset if partition in claim.committed else 0
            available[partition] = OffsetRange(offset, offset)
        self.tracker.ends({p: offsets.end for p, offsets in available.items()})
        return [self._backlog(claim, partition, offsets) for partition, offsets in sorted(available.items())]

    def _backlog(self, claim: Claim, partition: TopicPartition, offsets: OffsetRange) -> Backlog:
        entry = claim.committed.get(partition)
        committed, unsettled = entry.offset if entry else None, self._is_unsettled(partition, claim)
        lost = self._tails.get(partition)
        backlog = Backlog(partition, offsets, committed, unsettled, self.status.of(partition), lost)
        self._log_loss(backlog)
        self._log_lost_tail(backlog)
        undiscarded = self._undiscarded(partition, claim)
        state = observe(backlog, self.clock.time())
        if state.undiscarded != undiscarded:
            state = state.model_copy(update={"undiscarded": undiscarded})
        self.status.update([state])
        return replace(backlog, state=state)

    def _is_unsettled(self, partition: TopicPartition, claim: Claim) -> bool:
        entry = claim.committed.get(partition)
        if entry and entry.publish:
            return True
        # A partition with tokens to publish or discard is opened even without new records.
        return bool(claim.stale.get(partition)) and self.backoff.may_discard(partition)

    def _undiscarded(self, partition: TopicPartition, claim: Claim) -> str | None:
        tokens, tries = list(claim.stale.get(partition, {})), self.backoff.discards(partition)
        if not tokens or not tries:
            return None
        more = f" and {len(tokens) - _SHOWN} more" if len(tokens) > _SHOWN else ""
        return (
            f"uncommitted tokens could not be discarded in {tries} generations in a row, retrying after a "
            f"growing delay; the task's log has the cause: {', '.join(tokens[:_SHOWN])}{more}"
        )

    def _log_lost_tail(self, backlog: Backlog) -> None:
        lost, committed = backlog.lost_tail, backlog.committed
        if lost is None or committed is None or self.config.on_data_loss != "skip":
            return
        # The loss is logged once for each commit.
        if (backlog.partition, committed) in self._passed_over:
            return
        self._passed_over.add((backlog.partition, committed))
        # If the first lost offset is unknown, at least the last one is lost and counted.
        since = committed - 1 if lost.since is None else lost.since
        # A commit above these offsets skips them for good.
        self._lost[backlog.partition] = OffsetRange(since + 1, committed + 1)
        self.tracker.note(backlog.partition, LOST, self._counted[backlog.partition] + committed - since)
        log.error(
            "connector %s: %s: the source has lost its records from offset %s on; new records get these "
            "offsets, and are skipped up to the commit at offset %d (%s offsets; on.data.loss=skip)",
            self.config.name,
            backlog.partition,
            "?" if lost.since is None else lost.since,
            committed,
            "?" if lost.since is None else committed - lost.since,
        )

    def _log_loss(self, backlog: Backlog) -> None:
        if backlog.committed is None or self.config.on_data_loss != "skip":
            return
        lost = backlog.start - backlog.committed
        if lost <= 0:
            return
        before = self._lost.get(backlog.partition)
        self._lost[backlog.partition] = OffsetRange(backlog.committed, backlog.start)
        self.tracker.note(backlog.partition, LOST, self._counted[backlog.partition] + lost)
        if before is None:
            log.error(
                "connector %s: %s: %d offsets after the commit at offset %s are no longer in the source and "
                "are skipped (on.data.loss=skip)",
                self.config.name,
                backlog.partition,
                lost,
                backlog.committed,
            )

    def lost_before(self, committed: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, int]:
        """Count offsets that a commit has skipped for good; each is returned once."""
        found = {}
        for partition, offset in committed.items():
            lost = self._lost.get(partition)
            if lost is not None and offset is not None and offset >= lost.end:
                del self._lost[partition]
                found[partition] = lost.end - lost.start
                self._counted[partition] += lost.end - lost.start
        return found


def _ending_before(
    claim: Claim, available: Mapping[TopicPartition, OffsetRange]
) -> dict[TopicPartition, LostTail]:
    """Find partitions that end before their commits; :class:`TopicWatch` says their topics are the same."""
    return {
        p: LostTail(offsets.end)
        for p, offsets in available.items()
        if (entry := claim.committed.get(p)) is not None and offsets.end < entry.offset
    }


def _at_least(limit: OffsetRange, entry: PartitionCommit | None) -> OffsetRange:
    # Another driver may have committed beyond the range available at the start.
    return OffsetRange(limit.start, max(limit.end, entry.offset if entry else 0))


FirstRecords = Mapping[TopicPartition, tuple[OffsetRange, int]]


class TrailingGaps:
    """Finds partitions whose unread offsets contain no record, by queries in the background."""

    def __init__(self, source: Source, background: Background = in_a_thread) -> None:
        self._source = source
        self._background = background
        self._ends: dict[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, int] = {}
        self._empty: dict[TopicPartition, OffsetRange] = {}
        self._query: Future[FirstRecords] | None = None

    def among(self, backlogs: Iterable[Backlog]) -> list[RangePlan]:
        # Partitions that still grow are left out: the planner reads them without this query.
        lagging = {
            b.partition: OffsetRange(b.start, b.available.end)
            for b in backlogs
            if self._is_steady(b.partition, b.available.end) and b.start < b.available.end and not b.counted
        }
        self._take()
        # Partitions in which a record was found are not queried again until it is read.
        unknown = {
            partition: unread
            for partition, unread in lagging.items()
            if self._empty.get(partition) != unread and self._unread.get(partition, -1) < unread.start
        }
        if unknown and self._query is None:
            self._start_query(unknown)
            self._take()
        return [
            RangePlan.of(partition, unread.start, unread.end, due=True)
            for partition, unread in lagging.items()
            if self._empty.get(partition) == unread
        ]

    def _is_steady(self, partition: TopicPartition, end: int) -> bool:
        before, self._ends[partition] = self._ends.get(partition), end
        return before == end

    def _take(self) -> None:
        if self._query is None or not self._query.done():
            return
        results, self._query = self._query.result(), None
        for partition, (unread, first) in results.items():
            if first < unread.end:
                self._unread[partition] = first
            else:
                self._empty[partition] = unread

    def _start_query(self, unknown: Mapping[TopicPartition, OffsetRange]) -> None:
        query: Future[FirstRecords] = Future()

        def run() -> None:
            found: Mapping[TopicPartition, int] = {}
            try:
                found = self._source.first_records(unknown)
            except ConnectException as error:
                log.info(
                    "cannot determine whether %d partitions have uncommitted records, retrying: %s",
                    len(unknown),
                    error,
                )
            finally:
                query.set_result({partition: (unknown[partition], at) for partition, at in found.items()})

        self._query = query
        self._background(run)
