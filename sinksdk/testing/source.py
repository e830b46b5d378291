"""Where a trial's records come from: the same ones again when they are read again."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace

from sinksdk.records import SinkRecord, SinkRecords, TopicPartition


class EndlessSource:
    """Topic partitions that grow as they are read.

    Args:
        record: makes the record at an offset.
    """

    def __init__(
        self, partitions: Sequence[TopicPartition], record: Callable[[TopicPartition, int], SinkRecord]
    ) -> None:
        self._record = record
        self._records: dict[TopicPartition, list[SinkRecord]] = {p: [] for p in partitions}
        self._offsets: dict[TopicPartition, list[int]] = {p: [] for p in partitions}
        self._ends = dict.fromkeys(partitions, 0)

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        """Which there are."""
        return list(self._ends)

    def skip(self, partition: TopicPartition, count: int) -> None:
        """The next so many offsets have no records, as after compaction."""
        self._ends[partition] += count

    def produce(self, partition: TopicPartition, value: bytes | None = None) -> int:
        """Add a record, with a value of its own if one is given: its offset."""
        offset = self._ends[partition]
        record = self._record(partition, offset)
        self._records[partition].append(record if value is None else replace(record, value=value))
        self._offsets[partition].append(offset)
        self._ends[partition] = offset + 1
        return offset

    def read(self, partition: TopicPartition, start: int, count: int) -> SinkRecords:
        """The next records from an offset on; those that are not there are made."""
        first = bisect_left(self._offsets[partition], start)
        while len(self._offsets[partition]) < first + count:
            self.produce(partition)
        return SinkRecords.of(partition, self._records[partition][first : first + count])

    def offsets(self, partition: TopicPartition) -> Sequence[int]:
        """Offsets of the records there are, ascending."""
        return self._offsets[partition]

    def waiting(self, partition: TopicPartition, start: int) -> int:
        """How many records there are from an offset on."""
        return len(self._offsets[partition]) - bisect_left(self._offsets[partition], start)

    def value(self, partition: TopicPartition, offset: int) -> object:
        """The value of a record. Raises KeyError when there is none at this offset."""
        index = bisect_left(self._offsets[partition], offset)
        if index == len(self._offsets[partition]) or self._offsets[partition][index] != offset:
            raise KeyError(offset)
        return self._records[partition][index].value
