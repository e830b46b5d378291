"""How far a running task is: written now and then, for whoever watches."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from sinksdk.engine import WorkerSinkTask
from sinksdk.engine.clock import Clock
from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import progress_key
from sinksdk.store.reports import PartitionProgress, TaskProgress

log = logging.getLogger(__name__)

_INTERVAL: Final = 2.0  # seconds


class ProgressRow:
    """One attempt's hold on its task's progress.

    Args:
        store: where it is kept.
        connector: the connector's name.
        task: the task's number.
    """

    def __init__(self, store: Store, connector: str, task: int) -> None:
        self._store = store
        self._key = progress_key(connector, task)
        self._version: str | None = None

    def write(self, progress: TaskProgress) -> bool:
        """Write over what an earlier attempt or generation has left; whether it stands there now."""
        try:
            return self._write(progress)
        except ConnectException as error:
            log.info("progress was not written: %s", error)
            return False

    def _write(self, progress: TaskProgress) -> bool:
        try:
            self._version = table.write(self._store, self._key, progress, self._version).version
        except Conflict:
            found = table.read(self._store, self._key, TaskProgress)
            if found is not None and not _is_earlier(found.value, progress):
                return False
            version = found.version if found else None
            self._version = table.write(self._store, self._key, progress, version).version
        return True


def _is_earlier(one: TaskProgress, other: TaskProgress) -> bool:
    """Whether it is of an earlier attempt, or the same."""
    return (one.generation, one.attempt) <= (other.generation, other.attempt)


class ProgressWriter:
    """Tells the driver how far a task is, at most every two seconds. Informs only: failures are ignored."""

    def __init__(
        self,
        store: Store,
        spec: GenerationSpec,
        task: int,
        attempt: int,
        worker: WorkerSinkTask,
        *,
        clock: Clock,
        epoch: Callable[[], float],
    ) -> None:
        self._row = ProgressRow(store, spec.connector, task)
        self._generation = spec.generation
        self._attempt = attempt
        self._worker = worker
        self._clock = clock
        self._epoch = epoch
        self._next = clock.now()
        self._hangs: str | None = None
        self._last: tuple[float, dict[TopicPartition, int]] = clock.now(), {}

    def write_if_due(self) -> None:
        """Write the positions if the last time is long enough ago."""
        now = self._clock.now()
        if now < self._next:
            return
        self._next = now + _INTERVAL
        self.write()

    def tell_of_hang(self, where: str) -> bool:
        """Let the driver know; from another thread: the task's own hangs. Whether it stands in the store."""
        self._hangs = where
        return self.write()

    def write(self) -> bool:
        """Write the positions now; whether they stand in the store."""
        return self._row.write(self._progress())

    def write_last(self) -> None:
        """Write the positions now that the task has ended: nothing is read any more."""
        progress = self._progress()
        ended = tuple(row.model_copy(update={"rate": 0.0}) for row in progress.partitions)
        self._row.write(progress.model_copy(update={"partitions": ended}))

    def _progress(self) -> TaskProgress:
        before, counted = self._last
        now = self._clock.now()
        ahead = self._epoch() - now
        outcomes = [outcome.moved(ahead) for outcome in self._worker.outcomes()]
        self._last = now, {outcome.partition: outcome.records for outcome in outcomes}
        return TaskProgress(
            generation=self._generation,
            attempt=self._attempt,
            partitions=tuple(
                PartitionProgress(
                    topic=outcome.partition.topic,
                    partition=outcome.partition.partition,
                    position=outcome.delivered,
                    committed=outcome.committed,
                    records=outcome.records,
                    counts=dict(outcome.counts),
                    failure=outcome.failure.message if outcome.failure else None,
                    rate=(outcome.records - counted.get(outcome.partition, 0)) / max(now - before, 1.0),
                    tail=outcome.tail,
                    visible=outcome.visible,
                    is_final=outcome.failure is not None and outcome.failure.is_final,
                    retry=outcome.failure.retry if outcome.failure else None,
                )
                for outcome in outcomes
            ),
            hangs=self._hangs,
            measures=self._worker.measures(self._epoch()),
        )
