"""Offsets behind a commit that hold no record: transaction markers, what compaction has removed.

They would show as lag for ever. A range of them is as good as read: a generation commits its end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.planner import Backlog
from sinksdk.sources import Source
from sinksdk.store.records import PlannedRange

log = logging.getLogger(__name__)


class TrailingGaps:
    """Finds partitions whose unread offsets hold no record.

    Args:
        source: is asked only about a partition whose end has not moved since the last look, since one that
            grows will be read anyway; and not again while a record that was found is unread.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ends: dict[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, int] = {}

    def among(self, backlogs: Iterable[Backlog]) -> list[PlannedRange]:
        """Ranges that hold no record, to be committed without being read."""
        return [
            PlannedRange(
                topic=b.partition.topic, partition=b.partition.partition, start=start, end=end, due=True
            )
            for b in backlogs
            for start, end in [OffsetRange(b.start, b.available.end)]
            if self._is_steady(b.partition, end)
            and start < end
            and self._is_empty(b, OffsetRange(start, end))
        ]

    def _is_steady(self, partition: TopicPartition, end: int) -> bool:
        before, self._ends[partition] = self._ends.get(partition), end
        return before == end

    def _is_empty(self, backlog: Backlog, unread: OffsetRange) -> bool:
        partition = backlog.partition
        if backlog.counted.records or self._unread.get(partition, -1) >= unread.start:
            return False
        try:
            first = self._source.first_record(partition, unread)
        except ConnectException as error:
            log.info("%s: whether %s holds records cannot be told now: %s", partition, unread, error)
            return False
        if first < unread.end:
            self._unread[partition] = first
        return first >= unread.end
