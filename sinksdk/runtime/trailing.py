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
        source: is asked once for each range, and only for a partition whose end has not moved since the
            last look: one that grows will be read anyway.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ends: dict[TopicPartition, int] = {}
        self._asked: dict[TopicPartition, OffsetRange] = {}

    def among(self, backlogs: Iterable[Backlog]) -> list[PlannedRange]:
        """Ranges that hold no record, to be committed without being read."""
        found = []
        for backlog in backlogs:
            partition, unread = backlog.partition, OffsetRange(backlog.start, backlog.available.end)
            is_steady = self._ends.get(partition) == unread.end
            self._ends[partition] = unread.end
            if unread.start >= unread.end or not is_steady or self._asked.get(partition) == unread:
                continue
            if not backlog.counted.records and self._is_empty(partition, unread):
                found.append(
                    PlannedRange(
                        topic=partition.topic,
                        partition=partition.partition,
                        start=unread.start,
                        end=unread.end,
                        due=True,
                    )
                )
        return found

    def _is_empty(self, partition: TopicPartition, unread: OffsetRange) -> bool:
        try:
            is_empty = self._source.first_record(partition, unread) >= unread.end
        except ConnectException as error:
            log.info("%s: whether %s holds records cannot be told now: %s", partition, unread, error)
            return False
        self._asked[partition] = unread
        return is_empty
