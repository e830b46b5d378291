"""What the engine knows of one open partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sinksdk.engine.outcome import Failure, PartitionOutcome
from sinksdk.records import OffsetAndMetadata, SinkRecords, TopicPartition


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


@dataclass(slots=True)
class PartitionState:
    """Position and fate of one partition in this generation.

    Args:
        partition: which.
        start: first offset to deliver; rows below it were committed before and are dropped.
        end: offset after the last of its range, None when the range is open-ended.
        position: offset after the last accepted (or skipped) record.
        exhausted: its whole range has been read.
        is_open: ``open`` returned and ``close`` was not called yet.
    """

    partition: TopicPartition
    start: int
    end: int | None
    position: int
    exhausted: bool = False
    is_open: bool = False
    failure: Failure | None = None
    records: int = 0
    _uncommitted: deque[_Accepted] = field(default_factory=deque)

    def new_rows(self, records: SinkRecords) -> SinkRecords:
        """The rows of a batch that are still to deliver: those below ``start`` were committed before."""
        if not len(records) or self.start <= records.first_offset:
            return records
        offsets = offsets_of(records)
        return records[int(np.searchsorted(offsets, self.start)) :]

    def disorder(self, records: SinkRecords) -> str | None:
        """What is wrong with the order of a batch's offsets, if anything."""
        offsets = offsets_of(records)
        where = f"{records.partition}: the source delivers offset"
        if offsets[0] < self.position:
            return f"{where} {offsets[0]} after {self.position - 1}; offsets must ascend"
        steps = np.diff(offsets)
        if (steps <= 0).any():
            at = int(np.argmax(steps <= 0))
            return f"{where} {offsets[at + 1]} after {offsets[at]}; offsets must ascend"
        if self.end is not None and offsets[-1] >= self.end:
            return f"{where} {offsets[-1]}, beyond the range that ends at {self.end}"
        return None

    def accept(self, records: SinkRecords) -> None:
        """The task has taken these records: their offsets may be committed from now on."""
        first, after = records.first_offset, records.next_offset
        gapless = after - first == len(records)
        offsets = None if gapless else offsets_of(records).copy()
        self._uncommitted.append(_Accepted(first, after, len(records), offsets))
        self.position = after
        self.records += len(records)

    def committed(self, offset: int) -> None:
        """Forget what a commit covers."""
        while self._uncommitted and self._uncommitted[0].next <= offset:
            self._uncommitted.popleft()

    def has_news(self, floor: int) -> bool:
        """Whether there is more to commit than this offset, which is committed."""
        return self.position > floor or (self.exhausted and self.end is not None and self.end > floor)

    def up_to_range_end(self, offset: OffsetAndMetadata) -> OffsetAndMetadata:
        """All of an exhausted range is committed with its last record, so trailing gaps leave no lag."""
        if self.exhausted and self.end is not None and offset.offset == self.position < self.end:
            self.position = self.end
            return OffsetAndMetadata(self.end, offset.metadata, offset.publish)
        return offset

    def take_range_end(self, floor: int) -> bool:
        """Go to the end of a range that ended in gaps, if all before is committed; whether that is news."""
        if not self.exhausted or self.end is None or floor < self.position or self.end <= self.position:
            return False
        self.position = self.end
        return True

    def tail(self, committed: int) -> int:
        """How many accepted records lie above a commit: counted, since offsets have gaps."""
        return sum(batch.count_from(committed) for batch in self._uncommitted)

    def outcome(self, committed: int | None, counts: Mapping[str, int]) -> PartitionOutcome:
        """What became of it."""
        return PartitionOutcome(
            self.partition,
            committed,
            self.position,
            self.records,
            self.tail(self.start if committed is None else committed),
            self.end if self.exhausted and self.end is not None else self.position,
            self.failure,
            counts,
        )


def offsets_of(records: SinkRecords) -> npt.NDArray[np.int64]:
    """A batch's offsets without copying them."""
    column = records.arrow.column("offset")
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    array: npt.NDArray[np.int64] = column.to_numpy(zero_copy_only=True)
    return array
