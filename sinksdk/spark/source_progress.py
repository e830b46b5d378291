"""How far a source's running task is: written now and then, and when it has failed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sinksdk.engine.clock import Clock
from sinksdk.engine.outcome import Failure, SourceTaskOutcome, SourceTaskState
from sinksdk.engine.source import WorkerSourceTask
from sinksdk.engine.source_context import KnownPositions
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.progress import ProgressRow
from sinksdk.store import Store
from sinksdk.store.reports import SourcePartitionOffset, SourceProgress, TaskProgress
from sinksdk.support.measures import TaskMeasures

log = logging.getLogger(__name__)

_INTERVAL: Final = 2.0  # seconds


class SourceProgressWriter:
    """Tells the driver how far a task is, at most every two seconds.

    Args:
        store: where it is told.
        spec: whose generation.
        task: the task's number.
        attempt: which attempt at it.
        clock: time.
        epoch: seconds since the epoch.
    """

    def __init__(
        self,
        store: Store,
        spec: GenerationSpec,
        task: int,
        attempt: int,
        *,
        clock: Clock,
        epoch: Callable[[], float],
    ) -> None:
        self._row = ProgressRow(store, spec.connector, task)
        self._generation = spec.generation
        self._attempt = attempt
        self._clock = clock
        self._epoch = epoch
        self._last = clock.now(), 0
        self._failure: Failure | None = None
        self._hangs: str | None = None
        self.next = clock.now()
        """When the next time is, on the clock."""

    def write_if_due(self, worker: WorkerSourceTask) -> None:
        """Write how far a worker is, if the last time is long enough ago."""
        now = self._clock.now()
        if now < self.next:
            return
        self.next = now + _INTERVAL
        since, before = self._last
        records = worker.records
        self._last = now, records
        rate = (records - before) / max(now - since, 1.0)
        source = _said(worker.state, worker, self._failure, worker.known, rate)
        self._write(source, worker.measures(self._epoch()))

    def tell_of_hang(self, where: str, failure: Failure | None = None) -> None:
        """From now on say where the task is that does not come back, the first time soon.

        Args:
            where: at which lines of code.
            failure: the same as the task's failure, if it has failed by it.
        """
        log.error("%s", where)
        self._hangs, self._failure = where, self._failure or failure
        self.next = self._clock.now()

    def write_last(
        self, outcome: SourceTaskOutcome, measures: TaskMeasures, known: KnownPositions | None = None
    ) -> bool:
        """Write how the task has ended; whether it stands there now.

        Args:
            outcome: how.
            measures: what it has measured.
            known: how far it has read the source; None: it never came to ask.
        """
        source = _said(SourceTaskState.STOPPED, outcome, outcome.failure, known or KnownPositions())
        return self._write(source, measures)

    def _write(self, source: SourceProgress, measures: TaskMeasures) -> bool:
        return self._row.write(
            TaskProgress(
                generation=self._generation,
                attempt=self._attempt,
                partitions=(),
                hangs=self._hangs,
                measures=measures,
                source=source,
            )
        )


def _said(
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
