"""Count and time one task: per batch and per call, never per record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sinksdk.engine.clock import Clock
from sinksdk.model.measures import ErrorCounts, Phase, Sizes, SourceMeasures, TaskMeasures, Timing


class Measures:
    """Measurements of a task.

    Only its thread, or the holder of a source's writer lock, writes; any thread reads.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: dict[str, float] = {}
        self._closing_seconds: dict[str, float] = {}
        self._is_closing = False
        self._lost_letters = 0
        self._errors: Counter[str] = Counter()  # errors by field of ErrorCounts
        self._last_error: float | None = None
        self._counted = TaskMeasures()  # all counts but the times and errors above

    def taken(self, time: float) -> TaskMeasures:
        counted = self._counted
        # The clock is monotonic; ``time`` is now, in seconds since the epoch.
        last = self._last_error
        return replace(
            counted,
            errors=ErrorCounts(
                **self._errors,
                dead_letter_failures=self._lost_letters,
                last=None if last is None else time - (self._clock.now() - last),
            ),
            seconds=dict(self._seconds),
            closing_seconds=dict(self._closing_seconds),
        )

    @property
    def source(self) -> SourceMeasures:
        return self._counted.source

    def _add(self, **changes: Any) -> None:
        counted = self._counted
        self._counted = replace(
            counted, **{name: getattr(counted, name) + more for name, more in changes.items()}
        )

    # -- time ------------------------------------------------------------------------------------

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        began = self._clock.now()
        try:
            yield
        finally:
            self._spent(phase, self._clock.now() - began)

    @contextmanager
    def closing(self, asked: float | None) -> Iterator[None]:
        """Attribute phases to a close request; ``asked`` is the time of the request."""
        self._add(closings=1)
        self._is_closing = True
        try:
            if asked is not None:
                self._spent(Phase.CLOSE_LATENCY, max(self._clock.now() - asked, 0.0))
            yield
        finally:
            self._is_closing = False

    def _spent(self, phase: Phase, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
        if self._is_closing:
            self._closing_seconds[phase] = self._closing_seconds.get(phase, 0.0) + seconds

    # -- records ---------------------------------------------------------------------------------

    def read(self, records: int) -> None:
        self._add(records_read=records)
        self._activate(records)

    def _activate(self, records: int) -> None:
        active = self._counted.active
        self._counted = replace(self._counted, active=active.seen_at(active.now + records))

    @contextmanager
    def put(self, records: int) -> Iterator[None]:
        began = self._clock.now()
        with self.phase(Phase.PUT):
            yield
        self._add(puts=Timing().and_one(self._clock.now() - began), records_sent=records)
        self._batch(records)

    def _batch(self, records: int) -> None:
        self._counted = replace(self._counted, largest_batch=max(self._counted.largest_batch, records))

    def still_active(self, records: int) -> None:
        """Set the number of records that are read and not committed."""
        self._counted = replace(self._counted, active=replace(self._counted.active, now=records))

    # -- of a source -----------------------------------------------------------------------------

    def polled(self, records: int, seconds: float) -> None:
        if records:
            self._add(source=SourceMeasures(polls=Timing().and_one(seconds), records=records))
            self._batch(records)
            self._activate(records)

    def transaction_committed(self, records: int) -> None:
        self._add(source=SourceMeasures(transactions=Sizes().and_one(records)))
        self.still_active(self._counted.active.now - records)

    def transaction_aborted(self, records: int) -> None:
        self._add(source=SourceMeasures(aborts=1))
        self.still_active(self._counted.active.now - records)

    # -- commits ---------------------------------------------------------------------------------

    @contextmanager
    def offset_commit(self) -> Iterator[None]:
        """Count a commit, unless the block raises or calls :meth:`commit_failed`."""
        began, failures = self._clock.now(), self._counted.commit_failures
        try:
            yield
        except BaseException:
            self.commit_failed()
            raise
        if self._counted.commit_failures == failures:
            self._add(commits=Timing().and_one(self._clock.now() - began))

    def commit_failed(self) -> None:
        self._add(commit_failures=1)

    @contextmanager
    def commit_write(self) -> Iterator[None]:
        with self.phase(Phase.COMMIT):
            yield
        self._add(commit_writes=1)

    # -- errors ----------------------------------------------------------------------------------

    def failed(self) -> None:
        self._errors["record_failures"] += 1
        self._last_error = self._clock.now()

    def given_up(self) -> None:
        self._errors["record_errors"] += 1
        self._last_error = self._clock.now()

    def skipped(self) -> None:
        self._errors["records_skipped"] += 1

    def retried(self) -> None:
        self._errors["retries"] += 1

    def logged(self) -> None:
        self._errors["errors_logged"] += 1

    def dead_letter(self, letter: Future[None]) -> None:
        self._errors["dead_letters"] += 1
        letter.add_done_callback(self._letter_done)

    def _letter_done(self, letter: Future[None]) -> None:
        # This callback runs in the dead letters' thread, so it has a counter of its own.
        if letter.cancelled() or letter.exception() is not None:
            self._lost_letters += 1
