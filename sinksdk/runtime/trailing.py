"""Offsets behind a commit that hold no record: transaction markers, what compaction has removed.

They would show as lag for ever. A range of them is as good as read: a generation commits its end. Most are
committed together with the records before them; what is left is a partition that gets markers, or records of
an aborted transaction, and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import Future

from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, TopicPartition
from sinksdk.runtime.planner import Backlog
from sinksdk.sources import Source
from sinksdk.store.records import PlannedRange
from sinksdk.threads import Background, in_a_thread

log = logging.getLogger(__name__)

Answers = Mapping[TopicPartition, tuple[OffsetRange, int]]
"""The range that was asked about, and the offset of its first record or its end."""


class TrailingGaps:
    """Finds partitions whose unread offsets hold no record. Never blocks: it asks in the background.

    Args:
        source: is asked only about a partition whose end has not moved since the last look, since one that
            grows will be read anyway; and not again while a record that was found is unread.
        background: asks while the driver goes on.
    """

    def __init__(self, source: Source, background: Background = in_a_thread) -> None:
        self._source = source
        self._background = background
        self._ends: dict[TopicPartition, int] = {}
        self._unread: dict[TopicPartition, int] = {}
        self._empty: dict[TopicPartition, OffsetRange] = {}
        self._asked: Future[Answers] | None = None

    def among(self, backlogs: Iterable[Backlog]) -> list[PlannedRange]:
        """Ranges that are known by now to hold no record, to be committed without being read."""
        behind = {
            b.partition: OffsetRange(b.start, b.available.end)
            for b in backlogs
            if self._is_steady(b.partition, b.available.end)
            and b.start < b.available.end
            and not b.counted.records
        }
        self._take()
        unknown = {
            partition: unread
            for partition, unread in behind.items()
            if self._empty.get(partition) != unread and self._unread.get(partition, -1) < unread.start
        }
        if unknown and self._asked is None:
            self._ask(unknown)
            self._take()
        return [
            PlannedRange(topic=topic, partition=number, start=unread.start, end=unread.end, due=True)
            for (topic, number), unread in behind.items()
            if self._empty.get(TopicPartition(topic, number)) == unread
        ]

    def _is_steady(self, partition: TopicPartition, end: int) -> bool:
        before, self._ends[partition] = self._ends.get(partition), end
        return before == end

    def _take(self) -> None:
        """Take in what was answered, if it was."""
        if self._asked is None or not self._asked.done():
            return
        answers, self._asked = self._asked.result(), None
        for partition, (unread, first) in answers.items():
            if first < unread.end:
                self._unread[partition] = first
            else:
                self._empty[partition] = unread

    def _ask(self, unknown: Mapping[TopicPartition, OffsetRange]) -> None:
        asked: Future[Answers] = Future()

        def run() -> None:
            found: Mapping[TopicPartition, int] = {}
            try:
                found = self._source.first_records(unknown)
            except ConnectException as error:
                log.info(
                    "whether there are records behind the commits of %d partitions cannot be told now: %s",
                    len(unknown),
                    error,
                )
            finally:
                asked.set_result({partition: (unknown[partition], at) for partition, at in found.items()})

        self._asked = asked
        self._background(run)
