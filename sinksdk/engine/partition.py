"""The engine's state of one open partition, and the check that its source delivers ascending offsets."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from sinksdk.errors import ConnectException
from sinksdk.model.outcome import Failure, PartitionOutcome, Retry
from sinksdk.offsets import OffsetAndMetadata, OffsetRange, TopicPartition
from sinksdk.records import SinkRecords

_LISTED: Final = 20  # offsets that a message names one by one


class InDoubt(ConnectException):
    """A failure after which no accepted record may be committed."""


class OrderViolation(InDoubt):
    """A source delivers offsets out of order. No retry can help.

    Missing offsets may still arrive later, so this generation must commit nothing more.
    """


class UnfinishedHook(InDoubt):
    """A hook returned before its work was done: what it was given may not be written."""


def late_offsets(
    offsets: npt.NDArray[np.int64], before: int, *, may_repeat: bool = False
) -> tuple[npt.NDArray[np.int64], str] | None:
    """Offsets of a batch that are not above all before them.

    Args:
        before: the highest one of the batches before it, -1 if there was none.
        may_repeat: rows that follow each other in the batch may share an offset.

    Returns:
        The late (or repeated) ones, and the first of them in words; None where all ascend.
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
    """The error that ends a partition. ``who`` delivers the records: the source, or a transform of them."""
    passed = [offset for offset in late if committed is not None and offset < committed]
    if passed:
        outcome = (
            f"it was committed up to {committed} before that, which passed over {_listed(passed)} unless "
            f"the {who} had delivered them already: once it is in order, stop the connector and alter its "
            f"offset to {min(passed)}"
        )
    else:
        outcome = (
            f"no commit followed, so nothing is passed over: once the {who} is in order, restart the "
            f"connector; it reads on from {'where it began' if committed is None else committed}"
        )
    return OrderViolation(
        f"{label}: {partition}: the {who} delivers {what}; offsets must ascend (late or repeated: "
        f"{_listed(late)}); {outcome}"
    )


def _listed(offsets: Sequence[int]) -> str:
    distinct = sorted(set(offsets))
    shown = ", ".join(map(str, distinct[:_LISTED]))
    return shown if len(distinct) <= _LISTED else f"{shown} … {distinct[-1]}, {len(distinct):,} in all"


@dataclass(slots=True)
class _Accepted:
    """One accepted batch above the commit. Offsets are kept only where they have gaps."""

    first: int
    next: int
    count: int
    offsets: npt.NDArray[np.int64] | None

    def count_from(self, offset: int) -> int:
        if offset <= self.first:
            return self.count
        if self.offsets is None:
            return max(self.next - offset, 0)
        return self.count - int(np.searchsorted(self.offsets, offset))


# More than ten attributes: range, position and end change together, and only here.
@dataclass(slots=True)
class PartitionState:
    """State of one partition in this generation.

    Args:
        start: first offset to deliver; rows below it were committed before and are dropped.
        end: offset after the last of its range, None when the range is open-ended.
        limit: maximum number of records; its range may hold more.
        position: offset after the last accepted (or skipped) record.
        begin: first offset of its range, which an earlier attempt may have committed.
        seen: highest offset that the source has delivered, -1 before it has.
        exhausted: its whole range has been read.
        is_cut: its limit ends it: its range holds more records.
        is_open: ``open`` returned and ``close`` was not called yet.
        has_skipped: the task requested ``start``, and that is not committed yet.
        moved_to: position below the commit that the task requested for the next generation.
        retry: left by earlier generations.
        log: offsets that the source held when its range was planned, where that is known.
        is_transformed: records may have been dropped and multiplied on their way: those of one offset are in
            one batch.
        stays: this generation delivered what earlier ones could not, so the destination is available. Until a
            commit, the task retries in place, for any delay: a partition that ended at each refusal would
            read its tail again and again, and commit nothing.
        requested: what the task's call, not returned yet, gave ``context.fail``.
        refusal: the first of its records that this call reported, where bad records are not tolerated.
        misplaced: an impossible position that this call requested.
        is_fenced: its failure says that somebody newer owns it: nothing more is written or discarded.
        letters: dead letters that may not be durable yet.
        earlier: records that earlier attempts of this generation have committed.
        due: the offset after the last record that a task has accepted and not reported; None: unknown.
        errant: how many records of an offset the task has reported, since the last portion was accepted.
        records: accepted by this attempt.
    """

    partition: TopicPartition
    start: int
    end: int | None
    position: int
    begin: int = 0
    seen: int = -1
    limit: int | None = None
    exhausted: bool = False
    is_cut: bool = False
    is_open: bool = False
    has_skipped: bool = False
    moved_to: int | None = None
    retry: Retry | None = None
    log: OffsetRange | None = None
    is_transformed: bool = False
    stays: bool = False
    failure: Failure | None = None
    is_fenced: bool = False
    requested: BaseException | None = None
    refusal: BaseException | None = None
    misplaced: BaseException | None = None
    letters: deque[Future[None]] = field(default_factory=deque)
    earlier: int = 0
    records: int = 0
    due: int | None = None
    errant: Counter[int] = field(default_factory=Counter)
    _uncommitted: deque[_Accepted] = field(default_factory=deque)

    def new_rows(self, records: SinkRecords) -> SinkRecords:
        """Rows of an ordered batch that are still to deliver: those below ``start`` were committed before."""
        if not len(records) or self.start <= records.first_offset:
            return records
        offsets = records.offsets
        return records[int(np.searchsorted(offsets, self.start)) :]

    def within_limit(self, records: SinkRecords) -> SinkRecords:
        """The rows of a batch within the limit; if rows are left out, the range is cut."""
        room = len(records) if self.limit is None else self.limit - self.records
        if len(records) <= room:
            return records
        return records[: records.whole_offsets(room) if room > 0 else 0]

    def flaw(self, records: SinkRecords, committed: int | None, label: str) -> ConnectException | None:
        """What is wrong with a batch's offsets, if anything.

        Args:
            records: as the source delivers them, with rows that an earlier attempt has committed.
        """
        offsets = records.offsets
        who = "transform" if self.is_transformed else "source"
        late = late_offsets(offsets, self.seen, may_repeat=self.is_transformed)
        if late is not None:
            return order_violation(label, self.partition, late[1], late[0].tolist(), committed, who=who)
        if offsets[0] < self.begin:
            below = offsets[offsets < self.begin].tolist()
            what = f"offset {below[0]}, before the range that begins at {self.begin}"
            return order_violation(label, self.partition, what, below, committed, who=who)
        if self.end is not None and offsets[-1] >= self.end:
            # A transform that computes offsets has left records out below them.
            kind = InDoubt if self.is_transformed else ConnectException
            return kind(
                f"{label}: {self.partition}: the {who} delivers offset {offsets[-1]}, beyond the range that "
                f"ends at {self.end}"
            )
        return None

    def see(self, records: SinkRecords) -> None:
        """The source has delivered a batch without a flaw."""
        self.seen = records.next_offset - 1

    def accept(self, records: SinkRecords, given: SinkRecords | None = None) -> None:
        """The task has accepted these records: their offsets may be committed from now on.

        Args:
            given: what ``put`` was given of them: without bad and filtered ones.
        """
        self._note_due(records if given is None else given)
        first, after = records.first_offset, records.next_offset
        gapless = after - first == len(records) and not self.is_transformed
        offsets = None if gapless else records.offsets.copy()
        self._uncommitted.append(_Accepted(first, after, len(records), offsets))
        self.position = after
        self.records += len(records)
        if self.retry is not None and self.retry.refused is not None and self.retry.refused < after:
            self.retry, self.stays = None, True

    def _note_due(self, given: SinkRecords) -> None:
        """Of a transform's several rows with one offset all must be reported: else it counts as accepted."""
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
        """The ``due`` of a commit at this offset; at most the offset itself."""
        return None if self.due is None else min(self.due, offset)

    def committed(self, offset: int) -> None:
        """A commit covers all offsets below this one, which may be the end of a range that ends in gaps."""
        self.retry, self.stays = None, False  # there was progress
        self.reach(offset)
        while self._uncommitted and self._uncommitted[0].next <= offset:
            self._uncommitted.popleft()

    def reach(self, offset: int) -> None:
        """There is no record between the position and this offset."""
        self.position = max(self.position, offset)

    def has_news(self, floor: int) -> bool:
        """Whether there is more to commit than this committed offset."""
        return (
            self.position > floor
            or self.has_skipped
            or (self.exhausted and self.end is not None and self.end > floor)
        )

    def skip_to(self, offset: int) -> None:
        """The task has all records before: begin here, or at the end of the range if that comes first."""
        self.start = self.position = self.due = offset if self.end is None else min(offset, self.end)
        self.has_skipped = True

    def go_back_to(self, offset: int) -> None:
        """The next generation begins here; in this one nothing is read."""
        self.start = self.position = self.moved_to = offset

    def to_range_end(self, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """All of an exhausted range is committed with its last record, so trailing gaps leave no lag."""
        end = self.range_end(offset.offset)
        return offset if end is None else OffsetAndMetadata(end, offset.metadata, offset.publish)

    def range_end(self, committed: int) -> int | None:
        """The end of an exhausted range that ends in gaps, if all before these is committed."""
        if not self.exhausted or self.end is None or committed < self.position or self.end <= self.position:
            return None
        return self.end

    def tail(self, committed: int) -> int:
        """How many accepted records lie above a commit: counted, since offsets have gaps."""
        return sum(batch.count_from(committed) for batch in self._uncommitted)

    def records_below(self, offset: int) -> int:
        """How many records a commit of this offset makes in this generation."""
        return self.earlier + self.records - self.tail(offset)

    def outcome(
        self, committed: int | None, visible: int | None, counts: Mapping[str, int]
    ) -> PartitionOutcome:
        """What became of it."""
        return PartitionOutcome(
            self.partition,
            committed,
            self.position,
            self.earlier + self.records,
            self.tail(self.start if committed is None else committed),
            self.end if self.exhausted and self.end is not None else self.position,
            self.failure,
            counts,
            visible,
            self.begin if self.earlier else self.start,
            self.moved_to,
            self.earlier,
        )
