"""A running task writes its progress to the store every two seconds, for the driver.

An unavailable store is no failure of the task.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from sinksdk.engine import WorkerSinkTask
from sinksdk.engine.source_context import KnownPositions
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.errors import ConnectException
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import Failure, PartitionOutcome, SourceTaskOutcome, SourceTaskState
from sinksdk.store import Conflict, table
from sinksdk.store.keys import progress_key
from sinksdk.store.reports import SourcePartitionOffset, SourceProgress, TaskProgress
from sinksdk.worker.attempts import Attempt

log = logging.getLogger(__name__)

_INTERVAL: Final = 2.0  # seconds


class _ProgressWriter:
    def __init__(self, attempt: Attempt) -> None:
        self._attempt = attempt
        self._key = progress_key(attempt.spec.connector, attempt.task)
        self._version: str | None = None
        self._hangs: str | None = None
        self._last_at = attempt.clock.now()
        self.next = self._last_at  # time of the next write, on the monotonic clock

    def _becomes_due(self) -> bool:
        now = self._attempt.clock.now()
        if now < self.next:
            return False
        self.next = now + _INTERVAL
        return True

    def _since_last(self) -> float:
        now, before = self._attempt.clock.now(), self._last_at
        self._last_at = now
        # The divisor of rates.
        return max(now - before, 1.0)

    def _store(
        self,
        measures: TaskMeasures,
        partitions: Sequence[PartitionOutcome] = (),
        source: SourceProgress | None = None,
    ) -> bool:
        """Write the row, and return whether that succeeded."""
        progress = TaskProgress(
            generation=self._attempt.spec.generation,
            attempt=self._attempt.number,
            partitions=tuple(partitions),
            hangs=self._hangs,
            measures=measures,
            source=source,
        )
        try:
            return self._write(progress)
        except ConnectException as error:
            log.info("progress was not written: %s", error)
            return False

    def _write(self, progress: TaskProgress) -> bool:
        store = self._attempt.store
        try:
            self._version = table.write(store, self._key, progress, self._version).version
        except Conflict:
            found = table.read(store, self._key, TaskProgress)
            if found is not None and (found.value.generation, found.value.attempt) > (
                progress.generation,
                progress.attempt,
            ):
                return False
            version = found.version if found else None
            self._version = table.write(store, self._key, progress, version).version
        return True


class ProgressWriter(_ProgressWriter):
    def __init__(self, attempt: Attempt, worker: WorkerSinkTask) -> None:
        super().__init__(attempt)
        self._worker = worker
        self._last: list[PartitionOutcome] = []

    def write_if_due(self) -> None:
        if self._becomes_due():
            self.write()

    def report_hang(self, where: str) -> bool:
        self._hangs = where
        return self.write()

    def write(self) -> bool:
        return self._store(self._measures(), self._partitions())

    def write_last(self) -> None:
        self._store(self._measures(), [replace(outcome, rate=0.0) for outcome in self._partitions()])

    def _measures(self) -> TaskMeasures:
        return self._worker.measures(self._attempt.clock.time())

    def _partitions(self) -> list[PartitionOutcome]:
        before = {outcome.partition: outcome.records for outcome in self._last}
        seconds, ahead = self._since_last(), self._attempt.ahead()
        self._last = [outcome.on_clock(ahead) for outcome in self._worker.outcomes()]
        return [
            replace(
                outcome, rate=(outcome.records - before.get(outcome.partition, outcome.earlier)) / seconds
            )
            for outcome in self._last
        ]


class SourceProgressWriter(_ProgressWriter):
    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._records = 0
        self._failure: Failure | None = None

    def write_if_due(self, worker: WorkerSourceTask) -> None:
        if not self._becomes_due():
            return
        before, self._records = self._records, worker.records
        rate = (self._records - before) / self._since_last()
        source = _source_progress(worker.state, worker, self._failure, worker.known, rate)
        self._store(worker.measures(self._attempt.clock.time()), source=source)

    def report_hang(self, where: str, failure: Failure | None = None) -> None:
        """Include the hang in all further writes; with ``failure``, the task fails because of it."""
        log.error("%s", where)
        self._hangs, self._failure = where, self._failure or failure
        self.next = self._attempt.clock.now()

    def write_last(
        self, outcome: SourceTaskOutcome, measures: TaskMeasures, known: KnownPositions | None = None
    ) -> bool:
        """Return whether the store has written how the task ended."""
        return self._store(
            measures,
            source=_source_progress(
                SourceTaskState.STOPPED, outcome, outcome.failure, known or KnownPositions()
            ),
        )


def _source_progress(
    state: SourceTaskState,
    done: WorkerSourceTask | SourceTaskOutcome,
    failure: Failure | None,
    known: KnownPositions,
    rate: float = 0.0,
) -> SourceProgress:
    return SourceProgress(
        state=state,
        records=done.records,
        transactions=done.transactions,
        rate=rate,
        failure=failure.message if failure else None,
        trace=failure.trace if failure else None,
        offsets=tuple(
            SourcePartitionOffset(
                partition=dict(at.partition), offset=dict(at.offset), committed=is_committed
            )
            for at, is_committed in known.listed()
        ),
        has_more_offsets=known.has_more,
    )
