"""Counts and times what one task does: per batch and per call, never per record."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace

from sinksdk.engine.clock import Clock
from sinksdk.support.measures import ErrorCounts, Level, Phase, SourceMeasures, TaskMeasures, Timing


class Measures:
    """The engine's measurements of one task, from its start."""

    def __init__(self, clock: Clock) -> None:
        # More than ten attributes: one for each measurement.
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._closing_seconds: dict[str, float] = {}
        self._closings = 0
        self._is_closing = False
        self._puts = self._commits = Timing()
        self._largest_batch = self._read = self._sent = 0
        self._active = Level()
        self._commit_failures = self._commit_writes = 0
        self._errors = ErrorCounts()
        self._lost_letters = 0
        self._last_error: float | None = None

    def taken(self, time: float) -> TaskMeasures:
        """The numbers as they are now.

        Args:
            time: current time, in seconds since the epoch.
        """
        last = None if self._last_error is None else time - (self._clock.now() - self._last_error)
        return TaskMeasures(
            puts=self._puts,
            largest_batch=self._largest_batch,
            records_read=self._read,
            records_sent=self._sent,
            active=self._active,
            commits=self._commits,
            commit_failures=self._commit_failures,
            commit_writes=self._commit_writes,
            errors=replace(self._errors, dead_letter_failures=self._lost_letters, last=last),
            seconds=dict(self._seconds),
            closings=self._closings,
            closing_seconds=dict(self._closing_seconds),
        )

    # -- time ------------------------------------------------------------------------------------

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Count the duration of the block as this phase."""
        began = self._clock.now()
        try:
            yield
        finally:
            self._spent(phase, self._clock.now() - began)

    @contextmanager
    def closing(self, asked: float | None) -> Iterator[None]:
        """A close request; the phases inside the block are part of it.

        Args:
            asked: time of the request, on the clock; None if unknown.
        """
        self._closings += 1
        self._is_closing = True
        try:
            if asked is not None:
                self._spent(Phase.NOTICE, max(self._clock.now() - asked, 0.0))
            yield
        finally:
            self._is_closing = False

    def _spent(self, phase: Phase, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
        if self._is_closing:
            self._closing_seconds[phase] = self._closing_seconds.get(phase, 0.0) + seconds

    # -- records ---------------------------------------------------------------------------------

    def read(self, records: int) -> None:
        """A batch has been read."""
        self._read += records
        self._active = self._active.seen_at(self._active.now + records)

    @contextmanager
    def put(self, records: int) -> Iterator[None]:
        """The block calls ``put`` with this number of records."""
        began = self._clock.now()
        with self.phase(Phase.PUT):
            yield
        self._puts = self._puts.and_one(self._clock.now() - began)
        self._sent += records
        self._largest_batch = max(self._largest_batch, records)

    def still_active(self, records: int) -> None:
        """Number of records read and not committed, after a commit or the end of a partition."""
        self._active = replace(self._active, now=records)

    # -- commits ---------------------------------------------------------------------------------

    @contextmanager
    def offset_commit(self) -> Iterator[None]:
        """The block calls ``pre_commit`` and writes what it returns.

        The attempt fails if the block raises, or has called :meth:`commit_failed`.
        """
        began, failures = self._clock.now(), self._commit_failures
        try:
            yield
        except BaseException:
            self._commit_failures += 1
            raise
        if self._commit_failures == failures:
            self._commits = self._commits.and_one(self._clock.now() - began)

    def commit_failed(self) -> None:
        """The attempt at a commit has failed."""
        self._commit_failures += 1

    @contextmanager
    def commit_write(self) -> Iterator[None]:
        """The block writes a commit to the store."""
        with self.phase(Phase.COMMIT):
            yield
        self._commit_writes += 1

    # -- errors ----------------------------------------------------------------------------------

    def failed(self) -> None:
        """A record was reported, or an attempt at a batch raised."""
        self._errors = replace(self._errors, record_failures=self._errors.record_failures + 1)
        self._last_error = self._clock.now()

    def given_up(self) -> None:
        """A failure ends its partition."""
        self._errors = replace(self._errors, record_errors=self._errors.record_errors + 1)
        self._last_error = self._clock.now()

    def skipped(self) -> None:
        """A record that was reported is tolerated."""
        self._errors = replace(self._errors, records_skipped=self._errors.records_skipped + 1)

    def retried(self) -> None:
        """Something will be attempted again."""
        self._errors = replace(self._errors, retries=self._errors.retries + 1)

    def logged(self) -> None:
        """A record that was reported is logged."""
        self._errors = replace(self._errors, errors_logged=self._errors.errors_logged + 1)

    def dead_letter(self, letter: Future[None]) -> None:
        """A record was given to the dead letters; counted as failed if the write fails."""
        self._errors = replace(self._errors, dead_letters=self._errors.dead_letters + 1)
        letter.add_done_callback(self._letter_done)

    def _letter_done(self, letter: Future[None]) -> None:
        """Called in the dead letters' own thread, so it has a separate counter."""
        if letter.cancelled() or letter.exception() is not None:
            self._lost_letters += 1


class SourceTaskMeasures(Measures):
    """The engine's measurements of one source task, from its start.

    Written by the task's thread or the holder of the writer's lock; any thread may read.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._source = SourceMeasures()

    @property
    def source(self) -> SourceMeasures:
        """Current measurements that only source tasks have."""
        return self._source

    def taken(self, time: float) -> TaskMeasures:
        """See :meth:`Measures.taken`."""
        return replace(super().taken(time), source=self._source)

    def polled(self, records: int, seconds: float) -> None:
        """``poll`` has returned; without records it counts as time, not as a batch."""
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
        """A transaction was aborted at the task's request."""
        self._source = replace(self._source, aborts=self._source.aborts + 1)
        self.still_active(self._active.now - records)
