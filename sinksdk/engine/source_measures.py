"""Counts and times what one source task does: per batch and per call, never per record."""

from __future__ import annotations

from dataclasses import replace

from sinksdk.engine.clock import Clock
from sinksdk.engine.measures import Measures
from sinksdk.support.measures import SourceMeasures, TaskMeasures


class SourceTaskMeasures(Measures):
    """What the engine tells of one source task, from its beginning.

    Its task's thread writes, or who holds the task's writer; any thread may read.

    Args:
        clock: measures how long things take.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._source = SourceMeasures()

    @property
    def source(self) -> SourceMeasures:
        """What only a source's task does, as it is now."""
        return self._source

    def taken(self, time: float) -> TaskMeasures:
        """See :meth:`Measures.taken`."""
        return replace(super().taken(time), source=self._source)

    def polled(self, records: int, seconds: float) -> None:
        """``poll`` has returned; what took its time and brought nothing is no batch."""
        if records:
            polls = self._source.polls.and_one(seconds)
            self._source = replace(self._source, polls=polls, records=self._source.records + records)
            self._largest_batch = max(self._largest_batch, records)
            self._active = self._active.seen_at(self._active.now + records)

    def committed(self, records: int) -> None:
        """A transaction is committed."""
        self._source = replace(self._source, transactions=self._source.transactions.and_one(records))
        self.still_active(self._active.now - records)

    def aborted(self, records: int) -> None:
        """A transaction was aborted as the task asked for."""
        self._source = replace(self._source, aborts=self._source.aborts + 1)
        self.still_active(self._active.now - records)
