from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sinksdk import ConnectException
from sinksdk.control.herder import Herder
from sinksdk.control.shown import ConnectorInfo
from sinksdk.metrics.prometheus import exposition
from sinksdk.source import SourceRecord
from sinksdk.store import table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    progress_key,
)
from sinksdk.store.records import (
    TaskPlan,
)
from sinksdk.store.reports import (
    SourcePartitionOffset,
    SourceProgress,
    TaskProgress,
)
from sinksdk.topics import Subscription, TopicDirectorySource
from sinksdk.topics.directory.writer import TopicDirectoryOffsets, TopicDirectoryTarget
from sinksdk.topics.memory import MemoryTopics
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sources import Counting, CountingTask, Running, eventually

pytestmark = pytest.mark.usefixtures("at_once")


class Stumbling(CountingTask):
    def poll(self) -> Sequence[SourceRecord]:
        if self.config.share == "b" and self.next % 7 == 6 and not self.stumbled.get(self.next):
            self.stumbled[self.next] = True
            message = "the source is gone"
            raise ConnectException(message)
        return super().poll()

    stumbled: dict[int, bool] = {}  # noqa: RUF012 - of all instances


@pytest.fixture
def stumbling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Counting, "task_class", Stumbling)
    monkeypatch.setattr(Stumbling, "stumbled", {})


def metric(store: MemoryStore, name: str) -> float:
    text = exposition(Herder(store), "")[0].decode()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    )


def written(info: ConnectorInfo) -> int:
    return sum(row.total.source.transactions.total for row in info.measures)


def test_totals_equal_the_content_of_the_topic_directory(stumbling: None, tmp_path: Path) -> None:
    store, target = MemoryStore(), TopicDirectoryTarget(str(tmp_path))
    for orders in (3, 1):
        with Running(store, target, **{"restart.max.attempts": 100}) as running:
            eventually(lambda running=running: running.launcher.plans)  # type: ignore[misc]  # of this round
            for _ in range(orders):
                begun = len(CountingTask.started)
                Herder(store).rebalance("c")
                eventually(lambda begun=begun: len(CountingTask.started) > begun)  # type: ignore[misc]  # of this round
            failed = len(Stumbling.stumbled)
            eventually(lambda failed=failed: len(Stumbling.stumbled) > failed)  # type: ignore[misc]  # of this round

    ends = TopicDirectorySource(str(tmp_path)).partitions(Subscription(("numbers",), None))
    there = sum(offsets.end for offsets in ends.values())
    assert there > 20
    assert metric(store, "kafka_connect_source_task_metrics_source_record_write_total") == there
    assert metric(store, "kafka_connect_source_task_metrics_source_record_poll_total") == there
    assert (
        metric(store, "sinksdk_task_transactions_total") == there
    )  # each poll returns one record, which is a transaction of its own
    assert (
        metric(store, "kafka_connect_task_error_metrics_total_record_errors") == len(Stumbling.stumbled) > 1
    )

    history = Herder(store).history("c")
    assert sum(bucket.records for bucket in history.buckets) == there
    assert sum(bucket.transactions for bucket in history.buckets) == there
    (failure,) = history.failures
    assert (failure.task, failure.times) == (1, len(Stumbling.stumbled))
    assert "the source is gone" in failure.trace

    committed = TopicDirectoryOffsets(tmp_path, "c").positions()
    known = {str(row.partition): row.offset for row in Herder(store).info("c").source_offsets}
    assert known == {str(position.partition): position.offset for position in committed}


def test_polled_records_are_active_until_they_are_committed() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    running = Running(store, topics, **{"transaction.boundary": "interval", "restart.max.attempts": 9})
    running.connector.shares = [{"share": "a"}]
    with running:
        eventually(lambda: len(CountingTask.started) == 1)
        eventually(lambda: any(row.total.active.now > 1 for row in Herder(store).info("c").measures))

    info = Herder(store).info("c")
    there = len(topics.records("numbers"))
    assert written(info) == there == info.measures[0].total.source.records
    assert info.measures[0].total.source.transactions.count == 1
    assert info.measures[0].total.active.now == 0


def test_a_stopped_source_keeps_its_reported_offsets() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics):
        eventually(lambda: len(topics.positions["c"]) == 2)
    info = Herder(store).info("c")

    assert (info.driver, info.rate) == ("", 0.0)
    assert written(info) == len(topics.records("numbers")) > 0
    assert [(row.partition["share"], row.task) for row in info.source_offsets] == [("a", 0), ("b", 1)]
    assert not info.has_more_source_offsets


def test_the_next_tasks_report_requested_offsets() -> None:
    # A task learns its source partitions from the offsets it requests, before it commits anything.
    store, topics = MemoryStore(), MemoryTopics()
    with Running(store, topics):
        eventually(lambda: len(topics.positions["c"]) == 2)
    before = {key: position.offset for key, position in topics.positions["c"].items()}
    with Running(store, topics, **{"transaction.boundary": "interval"}) as running:
        eventually(lambda: len(CountingTask.started) == 2)
        eventually(lambda: len(Herder(store).info("c").source_offsets) == 2)
        known = {row.partition["share"]: row.offset for row in Herder(store).info("c").source_offsets}
        assert running.error is None

    assert known == {share: before[f'{{"share":"{share}"}}'] for share in "ab"}


# -- source partitions -------------------------------------------------------------------------------


def at(file: str, byte: int, *, committed: bool = True) -> SourcePartitionOffset:
    return SourcePartitionOffset(partition={"file": file}, offset={"byte": byte}, committed=committed)


def listed_offsets(
    *rows: tuple[int, Sequence[SourcePartitionOffset]], more: bool = False
) -> dict[str, tuple[int, int | None]]:
    store = MemoryStore()
    Herder(store).create("c", {"connector.class": "tests.runtime.running_sources:Counting"})
    generations = Generations(store, "c")
    for _ in range(max(generation for generation, _ in rows)):
        generations.plan(generations.claim(), [TaskPlan(ranges=())] * len(rows), 1, transactional_tasks=2)
    for task, (generation, offsets) in enumerate(rows):
        source = SourceProgress(state="RUNNING", offsets=tuple(offsets), has_more_offsets=more)
        row = TaskProgress(generation=generation, attempt=1, partitions=(), source=source)
        table.write(store, progress_key("c", task), row, None)
    found = Herder(store).info("c").source_offsets
    return {str(row.partition["file"]): (int(row.offset["byte"]), row.task) for row in found}


def test_a_committed_offset_takes_precedence_over_a_requested_one() -> None:
    rows = (
        (1, [at("a", 9), at("b", 1, committed=False)]),
        (1, [at("a", 3, committed=False), at("b", 1, committed=False)]),
    )
    assert listed_offsets(*rows) == {"a": (9, 0), "b": (1, None)}
    assert listed_offsets(*reversed(rows)) == {"a": (9, 1), "b": (1, None)}


def test_reported_offsets_are_kept_until_the_next_tasks_report() -> None:
    assert listed_offsets((1, [at("a", 5)]), (2, [])) == {"a": (5, 0)}
    assert listed_offsets((1, [at("a", 5)]), (2, [at("a", 5, committed=False)])) == {"a": (5, 1)}
    assert listed_offsets((2, [at("a", 7)]), (1, [at("a", 5)])) == {"a": (7, 0)}


def test_with_incomplete_reports_only_certain_offsets_are_listed() -> None:
    # Positions of tasks that do not report may be newer than those of another task, or than an earlier
    # commit.
    rows = (2, [at("a", 9), at("b", 1, committed=False)]), (1, [at("c", 3)])
    assert listed_offsets(*rows, more=True) == {"a": (9, 0)}
