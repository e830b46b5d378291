"""The progress that a running task writes."""

from __future__ import annotations

from typing import Any, cast
from unittest.mock import Mock

import pytest

from sinksdk import ClosingReason, TopicPartition
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.store import request_closing, table
from sinksdk.store.base import Lost, Stored
from sinksdk.store.keys import (
    progress_key,
    task_count_key,
)
from sinksdk.store.records import (
    Closing,
    TaskCountRecord,
)
from sinksdk.store.reports import (
    TaskProgress,
)
from sinksdk.testing import ManualClock
from sinksdk.worker.attempts import Attempt
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.progress import ProgressWriter
from sinksdk.worker.watches import ClosingWatch, HangWatch
from tests.helpers.memory_store import MemoryStore


class Worker:
    def outcomes(self) -> list[PartitionOutcome]:
        return [PartitionOutcome(TopicPartition("t", 0), 60, 100, 100, 40, 100)]

    def measures(self, time: float) -> TaskMeasures:
        return TaskMeasures(records_read=int(time))


def writer(store: MemoryStore, generation: int, attempt: int) -> ProgressWriter:
    spec, worker, taken = GenerationSpec("memory:", "id", "c", generation), cast("Any", Worker()), Mock()
    taken.ledger.attempt = attempt
    return ProgressWriter(Attempt(spec, store, 0, taken, ManualClock()), worker)


def written(store: MemoryStore) -> TaskProgress:
    row = table.read(store, progress_key("c", 0), TaskProgress)
    assert row is not None
    return row.value


def test_progress_contains_the_measures(store: MemoryStore) -> None:
    writer(store, 1, 1).write()

    assert written(store).measures == TaskMeasures(records_read=1_700_001_000)


def test_the_last_progress_of_a_task_has_a_rate_of_zero(store: MemoryStore) -> None:
    # The final rate is 0, so that the page does not show the last rate while nothing runs.
    reading = writer(store, 1, 1)
    reading.write()
    during = written(store).partitions
    reading.write_last()

    assert [(row.rate, row.records, row.tail) for row in during] == [(100.0, 100, 40)]
    assert [(row.rate, row.records, row.tail) for row in written(store).partitions] == [(0.0, 100, 40)]


@pytest.mark.parametrize(("generation", "attempt"), [(2, 1), (1, 2)])
def test_a_zombie_does_not_overwrite_the_progress_of_its_successor(
    generation: int, attempt: int, store: MemoryStore
) -> None:
    zombie, successor = writer(store, 1, 1), writer(store, generation, attempt)
    zombie.write()
    successor.write()
    zombie.write()

    assert (written(store).generation, written(store).attempt) == (generation, attempt)


def test_the_time_of_a_close_request_is_converted_to_the_clock_of_the_task(
    store: MemoryStore, clock: ManualClock
) -> None:
    closing = Closing(reason=ClosingReason.REBALANCE, timeout=5.0, asked=clock.time() - 3.0)
    table.write(store, task_count_key("c"), TaskCountRecord(claimed=1, planned=1), None)
    request_closing(store, "c", 1, closing)
    watch = ClosingWatch(store, GenerationSpec("memory:", "id", "c", 1), clock)
    watch.check()

    request = watch.request()
    assert request is not None
    assert request.asked == clock.now() - 3.0


def test_a_hang_is_reported_once_the_store_is_available_again() -> None:
    class Away(MemoryStore):
        is_away = True

        def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
            if self.is_away:
                message = "no answer"
                raise Lost(message)
            return super()._write(key, stored, if_version)

    store = Away(patience=0.0)
    task, clock = writer(store, 1, 1), ManualClock()
    watch = HangWatch("task 0", 10.0, clock, task.report_hang)
    clock.advance(11.0)
    watch.check()
    store.is_away = False
    clock.advance(1.0)
    watch.check()

    hangs = written(store).hangs
    assert hangs is not None
    assert hangs.startswith("task 0: its code has not returned for 11.0 s")
