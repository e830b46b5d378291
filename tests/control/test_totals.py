"""The measures of generations, added up: monotonic after any failure, and never counted twice."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.history import TotalsKeeper, read_totals, with_generation, with_progress
from sinksdk.control.info import connector_info
from sinksdk.control.shown import ConnectorInfo
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.store import table
from sinksdk.store.base import Lost, Stored
from sinksdk.store.keys import (
    plan_key,
    progress_key,
    task_count_key,
    totals_key,
)
from sinksdk.store.records import GenerationPlan, TaskCountRecord, TaskPlan
from sinksdk.store.reports import (
    ConnectorTotals,
    TaskProgress,
    TaskTotals,
)
from tests.helpers.memory_store import MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(records: int) -> TaskMeasures:
    return TaskMeasures(records_read=records)


def progress(generation: int, records: int, *, files: int = 0, attempt: int = 1) -> TaskProgress:
    counts = {"files": files} if files else {}
    partition = PartitionOutcome(TopicPartition("t", 0), None, 0, 0, 0, 0, counts=counts)
    return TaskProgress(
        generation=generation, attempt=attempt, partitions=(partition,), measures=read(records)
    )


def total(totals: ConnectorTotals, task: int = 0) -> int:
    return next(row.total.records_read for row in totals.tasks if row.task == task)


# -- adding ------------------------------------------------------------------------------------------


def test_measures_of_generations_are_added_by_task_number() -> None:
    totals = with_generation(ConnectorTotals(), 1, {0: read(10), 1: read(5)}, {P0: {"files": 2}, P1: {}})
    totals = with_generation(totals, 2, {0: read(7)}, {P0: {"files": 1, "bytes": 9}})

    assert totals.generation == 2
    assert totals.tasks == (
        TaskTotals(task=0, total=read(17), last=read(7)),
        TaskTotals(task=1, total=read(5), last=read(5)),
    )
    assert [(row.topic_partition, row.counts) for row in totals.partitions] == [
        (P0, {"files": 3, "bytes": 9})
    ]


@pytest.mark.parametrize("generation", [1, 2])
def test_a_generation_is_added_to_the_totals_once(generation: int) -> None:
    totals = with_generation(ConnectorTotals(), 2, {0: read(10)}, {})

    assert with_generation(totals, generation, {0: read(10)}, {P0: {"files": 1}}) == totals


def test_progress_of_a_running_generation_is_added_until_the_totals_contain_it() -> None:
    rows = {0: progress(3, 4, files=1)}
    before = with_generation(ConnectorTotals(), 2, {0: read(10)}, {P0: {"files": 5}})
    after = with_generation(before, 3, {0: read(6)}, {P0: {"files": 1}})

    assert total(with_progress(before, rows)) == 14
    assert with_progress(before, rows).partitions[0].counts == {"files": 6}
    assert with_progress(after, rows) == after


def test_totals_read_while_generations_change_are_complete() -> None:
    ended = with_generation(ConnectorTotals(), 3, {0: read(10), 1: read(10)}, {})
    found = with_progress(ended, {0: progress(3, 10), 1: progress(4, 1)})

    assert (total(found, 0), total(found, 1)) == (10, 11)


# -- keeping -----------------------------------------------------------------------------------------


class FlakyStore(MemoryStore):
    is_down = False

    def _read(self, key: str) -> Stored | None:
        if self.is_down:
            raise Lost("down")
        return super()._read(key)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if self.is_down:
            raise Lost("down")
        return super()._write(key, stored, if_version)

    def _keys(self, prefix: str) -> list[str]:
        if self.is_down:
            raise Lost("down")
        return list(super()._keys(prefix))


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore(patience=0.01)


def report(store: MemoryStore, row: TaskProgress, task: int = 0) -> None:
    key = progress_key("c", task)
    found = store.get(key)
    table.write(store, key, row, found.version if found else None)


def keeper(store: MemoryStore) -> TotalsKeeper:
    made = TotalsKeeper(store, "c")
    made.catch_up()
    return made


def test_a_new_driver_continues_the_totals(store: FlakyStore) -> None:
    keeper(store).add(1, {0: read(10)}, {P0: {"files": 1}})
    keeper(store).add(2, {0: read(5)}, {P0: {"files": 1}})

    totals = read_totals(store, "c")
    assert (totals.generation, total(totals), totals.partitions[0].counts) == (2, 15, {"files": 2})


def test_progress_that_a_crashed_driver_had_not_added_is_added(store: FlakyStore) -> None:
    keeper(store).add(1, {0: read(10)}, {})
    report(store, progress(2, 6, files=3))
    keeper(store)
    report(store, progress(3, 1))

    totals = read_totals(store, "c")
    assert (totals.generation, total(totals), totals.partitions[0].counts) == (2, 16, {"files": 3})


def test_progress_already_in_the_totals_is_not_added_again(store: FlakyStore) -> None:
    report(store, progress(1, 6))
    for _ in range(3):
        keeper(store)

    assert total(read_totals(store, "c")) == 6


def test_totals_lost_in_an_outage_of_the_store_are_added_later(store: FlakyStore) -> None:
    made = keeper(store)
    store.is_down = True
    made.add(1, {0: read(10)}, {})
    store.is_down = False
    made.add(2, {0: read(5)}, {})

    assert total(read_totals(store, "c")) == 15


def test_a_driver_started_during_an_outage_of_the_store_adds_missed_progress_later(store: FlakyStore) -> None:
    # The tasks' progress includes a generation that ended in between; the result of the same generation adds
    # nothing.
    keeper(store).add(1, {0: read(10)}, {})
    store.is_down = True
    late = keeper(store)
    store.is_down = False
    report(store, progress(2, 5))
    late.add(2, {0: read(5)}, {})

    assert total(read_totals(store, "c")) == 15


def test_a_fenced_driver_does_not_overwrite_the_totals(store: FlakyStore) -> None:
    # The fenced driver's totals lack the newer driver's generations, so the fenced driver must write none.
    old = keeper(store)
    old.add(1, {0: read(10)}, {})
    newer = keeper(store)
    newer.add(3, {0: read(5)}, {})
    old.add(2, {0: read(1)}, {})

    totals = read_totals(store, "c")
    assert (totals.generation, total(totals)) == (3, 15)


def test_removed_totals_are_recreated(store: FlakyStore) -> None:
    made = keeper(store)
    made.add(1, {0: read(10)}, {})
    store.delete(totals_key("c"), store.get(totals_key("c")).version)  # type: ignore[union-attr]  # it is there
    made.add(2, {0: read(5)}, {})

    assert total(read_totals(store, "c")) == 15


# -- reports ------------------------------------------------------------------------------------


def lives(store: MemoryStore) -> Iterator[str]:
    # Of three generations, one loses its driver.
    made = TotalsKeeper(store, "c")
    made.catch_up()
    for generation in (1, 2, 3):
        planned(store, generation)
        yield f"generation {generation} is planned"
        for records in (3, 9):
            report(store, progress(generation, records, files=records // 3))
            yield f"generation {generation} has read {records}"
        if generation == 2:
            made = TotalsKeeper(store, "c")
            made.catch_up()
            yield "another driver has claimed"
        else:
            made.add(generation, {0: read(10)}, {P0: {"files": 4}})
            yield f"generation {generation} has ended"


def planned(store: MemoryStore, generation: int) -> None:
    task = TaskPlan(ranges=(RangePlan(topic="t", partition=0, start=0, end=10),))
    plan = GenerationPlan(generation=generation, config_version=1, tasks=(task,), committed=())
    table.write(store, plan_key("c", generation), plan, None)
    count = TaskCountRecord(claimed=generation, planned=generation, tasks=1, config_version=1)
    found = store.get(task_count_key("c"))
    table.write(store, task_count_key("c"), count, found.version if found else None)


def counters(info: ConnectorInfo) -> tuple[int, int]:
    records = sum(row.total.records_read for row in info.measures)
    return records, sum(partition.counts.get("files", 0) for partition in info.partitions)


def test_counters_of_a_connector_never_decrease(store: FlakyStore) -> None:
    # Counters are kept after a driver crashed.
    Herder(store).create("c", {"name": "c"})
    seen = [counters(connector_info(store, "c", 0.0)) for _ in lives(store)]

    assert all(a[0] <= b[0] and a[1] <= b[1] for a, b in itertools.pairwise(seen)), seen
    assert seen[-1] == (10 + 9 + 10, 4 + 3 + 4)


def test_a_connector_without_a_driver_keeps_its_counters(store: FlakyStore) -> None:
    Herder(store).create("c", {"name": "c"})
    planned(store, 1)
    report(store, progress(1, 6))

    info = connector_info(store, "c", 1e12)
    assert (info.driver, counters(info)[0]) == ("", 6)


# -- partitions that are gone ------------------------------------------------------------------------


def test_counters_of_deleted_partitions_are_summed_up() -> None:
    # Topics that exist for an hour only must leave no rows behind.
    totals = ConnectorTotals()
    for generation in range(1, 101):
        partition = TopicPartition(f"hourly-{generation}", 0)
        totals = with_generation(
            totals, generation, {0: read(1)}, {partition: {"files": 2}, P0: {"files": 1}}, {partition, P0}
        )

    assert [(row.topic_partition, row.counts) for row in totals.partitions] == [
        (TopicPartition("hourly-100", 0), {"files": 2}),
        (P0, {"files": 100}),
    ]
    assert totals.vanished == {"files": 198}


def test_partitions_are_kept_while_the_source_is_unavailable() -> None:
    totals = with_generation(ConnectorTotals(), 1, {}, {P0: {"files": 1}, P1: {"files": 1}}, None)

    assert len(totals.partitions) == 2
    assert totals.vanished == {}
