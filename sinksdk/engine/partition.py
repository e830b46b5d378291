"""The engine keeps the state of an open partition, and checks that offsets ascend."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sinksdk.errors import ConnectException
from sinksdk.model.outcome import Failure, PartitionOutcome, Retry
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, TopicPartition
from sinksdk.records import SinkRecords

_LISTED: Final = 20  # offsets that a message names one by one


class InDoubt(ConnectException):
    """A failure after which no accepted record may be committed."""


class OrderViolation(InDoubt):
    """Missing offsets may still arrive after later ones: no commit may follow."""


def late_offsets(
    offsets: npt.NDArray[np.int64], before: int, *, may_repeat: bool = False
) -> tuple[npt.NDArray[np.int64], str] | None:
    """Return the offsets that are not above all before them, and the first in words; None: all ascend.

    Rows that follow each other may share an offset if ``may_repeat``.
    """
    later, earlier = offsets[1:], offsets[:-1]
    if offsets[0] > before and bool((later >= earlier if may_repeat else later > earlier).all()):
        return None
    highest = np.maximum.accumulate(np.concatenate((np.array([before], np.int64), offsets)))[:-1]
    is_late = offsets <= highest
    if may_repeat:
        is_late[1:] &= offsets[1:] < highest[1:]
    first = int(np.argmax(is_late))
    return offsets[is_late], f"offset {offsets[first]} after {highest[first]}"


def order_violation(
    label: str,
    partition: TopicPartition,
    what: str,
    late: Sequence[int],
    committed: int | None,
    *,
    who: str = "source",
) -> OrderViolation:
    passed = [offset for offset in late if committed is not None and offset < committed]
    if passed:
        outcome = (
            f"the commit was already at {committed}, which skips {_listed(passed)} unless the {who} had "
            f"delivered them before: once the {who} delivers in order, stop the connector and alter the "
            f"partition's offset to {min(passed)}"
        )
    else:
        outcome = (
            f"no commit followed, so no record is skipped: once the {who} delivers in order, restart the "
            f"connector; it resumes at {'its start offset' if committed is None else committed}"
        )
    return OrderViolation(
        f"{label}: {partition}: the {who} delivers {what}; offsets must ascend (late or repeated: "
        f"{_listed(late)}); {outcome}"
    )


def _listed(offsets: Sequence[int]) -> str:
    distinct = sorted(set(offsets))
    shown = ", ".join(map(str, distinct[:_LISTED]))
    return shown if len(distinct) <= _LISTED else f"{shown} … {distinct[-1]}, {len(distinct):,} in all"


class _Batch(NamedTuple):
    start: int
    end: int
    rows: int
    offsets: npt.NDArray[np.int64] | None  # None: without gaps

    def count_from(self, offset: int) -> int:
        if offset <= self.start:
            return self.rows
        if self.offsets is None:
            return max(self.end - offset, 0)
        return self.rows - int(np.searchsorted(self.offsets, offset))


@dataclass(slots=True)
class AcceptedRecords:
    committed_before: int = 0  # by earlier attempts of this generation
    due: int | None = None  # next offset after the last record that was not reported
    count: int = 0  # accepted by this attempt
    errant: Counter[int] = field(default_factory=Counter)  # reported records of the portion, by offset
    _uncommitted: deque[_Batch] = field(default_factory=deque)

    @property
    def total(self) -> int:
        return self.committed_before + self.count

    def add(self, records: SinkRecords, given: SinkRecords, *, is_transformed: bool) -> None:
        self._note_due(given)
        start, end = records.first_offset, records.next_offset
        is_gapless = end - start == len(records) and not is_transformed
        self._uncommitted.append(
            _Batch(start, end, len(records), None if is_gapless else records.offsets.copy())
        )
        self.count += len(records)

    def _note_due(self, given: SinkRecords) -> None:
        # A transform may make several rows of one offset: it counts as reported only if all of them are.
        offsets = given.offsets if len(given) else ()
        row = len(offsets)
        while row and self.errant:
            offset = int(offsets[row - 1])
            first = int(np.searchsorted(offsets, offset))
            if self.errant[offset] < row - first:
                break
            row = first
        if row:
            self.due = int(offsets[row - 1]) + 1
        self.errant.clear()

    def due_below(self, offset: int) -> int | None:
        return None if self.due is None else min(self.due, offset)

    def forget_below(self, offset: int) -> None:
        while self._uncommitted and self._uncommitted[0].end <= offset:
            self._uncommitted.popleft()

    def tail(self, committed: int) -> int:
        # Records are counted one by one, because offsets have gaps.
        return sum(batch.count_from(committed) for batch in self._uncommitted)

    def below(self, offset: int) -> int:
        """Return how many records are committed once this offset is."""
        return self.total - self.tail(offset)


@dataclass(slots=True)
class PartitionEnding:
    failure: Failure | None = None  # the first failure
    is_fenced: bool = False  # a newer task owns the partition: nothing is written or discarded
    moved_to: int | None = None  # the position below the commit that the task requested
    # Failures that the author's code has caused in the running call: by ``context.fail``, by a record that is
    # not tolerated, and by a requested position.
    requested: BaseException | None = None
    refusal: BaseException | None = None
    misplaced: BaseException | None = None

    def take_requested(self) -> list[BaseException]:
        errors = [e for e in (self.requested, self.refusal, self.misplaced) if e is not None]
        self.requested = self.refusal = self.misplaced = None
        return errors

    def take_refusal(self) -> BaseException | None:
        refusal, self.refusal = self.refusal, None
        return refusal


@dataclass(slots=True)
class PartitionState:
    plan: RangePlan
    start: int  # rows below it are committed already
    position: int  # offset after the last accepted or skipped record
    accepted: AcceptedRecords = field(default_factory=AcceptedRecords)
    ending: PartitionEnding = field(default_factory=PartitionEnding)
    is_transformed: bool = False  # Spark may multiply records; those of one offset are in one batch
    retry: Retry | None = None  # None once there is progress
    # The task has accepted the record at which an earlier generation stopped to wait for a retry. Until the
    # next commit it retries in place: if the partition ended at each further failure, its uncommitted records
    # would be read again and again.
    retries_in_place: bool = False
    seen: int = -1  # highest offset that the source has delivered
    is_exhausted: bool = False  # the whole range has been read
    is_cut: bool = False  # the plan's limit of records was reached
    is_open: bool = False
    has_skipped: bool = False  # from the commit to ``start``, which is not committed yet
    letters: deque[Future[None]] = field(default_factory=deque)  # dead letters that may not be durable yet

    # -- delivery --------------------------------------------------------------------------------

    def new_rows(self, records: SinkRecords) -> SinkRecords:
        if not len(records) or self.start <= records.first_offset:
            return records
        offsets = records.offsets
        return records[int(np.searchsorted(offsets, self.start)) :]

    def within_limit(self, records: SinkRecords) -> SinkRecords:
        limit = self.plan.records
        room = len(records) if limit is None else limit - self.accepted.count
        if len(records) <= room:
            return records
        return records[: records.whole_offsets(room) if room > 0 else 0]

    def flaw(self, records: SinkRecords, committed: int | None, label: str) -> ConnectException | None:
        offsets, begin, end = records.offsets, self.plan.start, self.plan.end
        who = "transform" if self.is_transformed else "source"
        partition = records.partition
        late = late_offsets(offsets, self.seen, may_repeat=self.is_transformed)
        if late is not None:
            return order_violation(label, partition, late[1], late[0].tolist(), committed, who=who)
        if offsets[0] < begin:
            below = offsets[offsets < begin].tolist()
            what = f"offset {below[0]}, before the range that begins at {begin}"
            return order_violation(label, partition, what, below, committed, who=who)
        if offsets[-1] >= end:
            # A transform that computes offsets has left out records below them.
            kind = InDoubt if self.is_transformed else ConnectException
            return kind(
                f"{label}: {partition}: the {who} delivers offset {offsets[-1]}, beyond the range, whose end "
                f"offset (exclusive) is {end}"
            )
        return None

    def note_delivered(self, records: SinkRecords) -> None:
        self.seen = records.next_offset - 1

    def accept(self, records: SinkRecords, given: SinkRecords | None = None) -> None:
        """Accept ``records``; ``put`` was given those that are neither bad nor filtered."""
        self.accepted.add(records, records if given is None else given, is_transformed=self.is_transformed)
        self.position = records.next_offset
        if self.retry is not None and self.retry.refused is not None and self.retry.refused < self.position:
            self.retry, self.retries_in_place = None, True

    # -- commit ----------------------------------------------------------------------------------

    def note_commit(self, offset: int) -> None:
        self.retry, self.retries_in_place = None, False  # there was progress
        self.reach(offset)
        self.accepted.forget_below(offset)

    def reach(self, offset: int) -> None:
        """Note that no record is between the position and this offset."""
        self.position = max(self.position, offset)

    def has_uncommitted(self, floor: int) -> bool:
        return self.position > floor or self.has_skipped or (self.is_exhausted and self.plan.end > floor)

    def skip_to(self, offset: int) -> None:
        # The destination already has all records below the offset.
        self.start = self.position = self.accepted.due = min(offset, self.plan.end)
        self.has_skipped = True

    def move_back_to(self, offset: int) -> None:
        # The next generation begins at the offset; this one reads no more of the partition.
        self.start = self.position = self.ending.moved_to = offset

    def read_to_end(self) -> None:
        self.is_exhausted = not self.is_cut and not self.plan.is_open_ended

    def to_range_end(self, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        # Offsets without a record at the end of a range must not count as lag.
        end = self.range_end(offset.offset)
        return offset if end is None else OffsetAndMetadata(end, offset.metadata, offset.publish)

    def range_end(self, committed: int) -> int | None:
        end = self.plan.end
        if not self.is_exhausted or committed < self.position or end <= self.position:
            return None
        return end

    def outcome(
        self, committed: int | None, visible: int | None, counts: Mapping[str, int]
    ) -> PartitionOutcome:
        before = self.accepted.committed_before
        return PartitionOutcome(
            self.plan.topic_partition,
            committed,
            self.position,
            self.accepted.total,
            self.accepted.tail(self.start if committed is None else committed),
            self.plan.end if self.is_exhausted else self.position,
            self.ending.failure,
            counts,
            visible,
            self.plan.start if before else self.start,
            self.ending.moved_to,
            before,
        )
