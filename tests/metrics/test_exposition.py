"""The metrics in Prometheus's format, from a store in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from sinksdk import OffsetAndMetadata, TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.control.history import TotalsKeeper
from sinksdk.control.status import State, StatusKeeper
from sinksdk.engine.clock import SystemWallClock
from sinksdk.metrics.prometheus import METRICS, exposition
from sinksdk.model.measures import ErrorCounts, Level, Sizes, SourceMeasures, TaskMeasures, Timing
from sinksdk.model.outcome import PartitionOutcome, Retry
from sinksdk.model.plan import PlannerState, RangePlan
from sinksdk.spark.task_slots import ConnectorSlots, TaskSlots
from sinksdk.store import Store, StoreUnavailable, table, take_over
from sinksdk.store.base import Lost, Stored
from sinksdk.store.generations import Generations
from sinksdk.store.keys import ends_key, plan_key, progress_key
from sinksdk.store.records import TaskPlan
from sinksdk.store.reports import ConnectorEnds, SourceProgress, TaskProgress
from tests.helpers.memory_store import MemoryStore

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
TASK = {"connector": "archive", "task": "0"}

BEFORE = TaskMeasures(
    puts=Timing(10, 5.0, 3.0),
    largest_batch=900,
    records_read=1_000,
    records_sent=990,
    active=Level(0, 800, 800, 1),
    commits=Timing(4, 2.0, 1.5),
    commit_failures=2,
    commit_writes=3,
    errors=ErrorCounts(12, 1, 10, 4, 10, 9, 1, 1_700_000_000.25),
    seconds={"put": 6.0, "publish": 1.0},
    closings=1,
    closing_seconds={"publish": 0.5},
)
NOW = TaskMeasures(
    puts=Timing(4, 2.0, 1.0),
    largest_batch=30,
    records_read=100,
    records_sent=80,
    active=Level(20, 60, 120, 4),
    commits=Timing(3, 0.3, 0.2),
    commit_failures=1,
    commit_writes=2,
    errors=ErrorCounts(records_skipped=1),
    seconds={"put": 2.0},
)


POLLED = TaskMeasures(
    largest_batch=60,
    active=Level(5, 60, 90, 3),
    commits=Timing(2, 0.5, 0.4),
    commit_failures=2,
    errors=ErrorCounts(record_failures=3, record_errors=1, retries=2),
    seconds={"poll": 4.0},
    source=SourceMeasures(Timing(4, 2.0, 1.0), 100, Sizes(2, 80, 60, 20), 1),
)
SOURCE_TASK = {"connector": "numbers", "task": "0"}


class Counting(MemoryStore):
    """A store without snapshots, like one on S3. It counts its reads, and can be unavailable."""

    reads = 0
    is_away = False

    def snapshot(self, prefix: str) -> Store:
        return self

    def _read(self, key: str) -> Stored | None:
        if self.is_away:
            raise Lost("away")
        self.reads += 1
        return super()._read(key)


@pytest.fixture
def store() -> Counting:
    return Counting(patience=0.01)


def archive(store: MemoryStore, state: State = "RUNNING") -> None:
    """Store a connector in its second generation. Task 0 runs and has commits; task 1 no longer exists."""
    Herder(store).create("archive", {"name": "archive", "connector.class": "s3-archiver"})
    generations = Generations(store, "archive")
    generations.plan(generations.claim(), [], 1)
    totals = TotalsKeeper(store, "archive")
    totals.catch_up()
    gone = TopicPartition("gone", 0)
    counts = {P0: {"files": 7}, gone: {"files": 4}}
    totals.add(1, {0: BEFORE, 1: TaskMeasures(records_read=5)}, counts, existing={P0})
    ranges = tuple(RangePlan(topic="orders", partition=p, start=0, end=100) for p in (0, 1))
    generations.plan(generations.claim(), [TaskPlan(ranges=ranges)], 1)
    taken = take_over(store, "archive", 2, 0)
    assert taken is not None
    taken.ledger.commit({P0: OffsetAndMetadata(60)})
    rows = (
        PartitionOutcome(P0, 60, 75, 75, 0, 75, counts={"files": 2}, rate=4.0),
        PartitionOutcome(TopicPartition("orders", 1), None, 5, 5, 5, 5, rate=1.5),
    )
    row = TaskProgress(generation=2, attempt=1, partitions=rows, measures=NOW)
    table.write(store, progress_key("archive", 0), row, None)
    keeper = StatusKeeper(store, "archive", "here:7#1", SystemWallClock())
    keeper.update(
        [
            PlannerState(topic="orders", partition=0, end=100),
            PlannerState(
                topic="orders",
                partition=1,
                end=40,
                failures=3,
                error="S3 asks for patience",
                retry=Retry(since=1_000.0, attempts=7, next_attempt=1_090.0),
            ),
        ]
    )
    keeper.miss(["gone"])
    keeper.become(state)
    ends = ConnectorEnds.of({P0: 100}, {P0: 1_000.0, P1: 1_060.0})
    table.write(store, ends_key("archive"), ends, None)


def numbers(store: MemoryStore, state: State = "RUNNING") -> None:
    """Store a source in its second generation; its task has the same measures in both generations."""
    Herder(store).create("numbers", {"connector.class": "tests.runtime.running_sources:Counting"})
    generations = Generations(store, "numbers")
    generations.plan(generations.claim(), [TaskPlan(ranges=())], 1, transactional_tasks=1)
    totals = TotalsKeeper(store, "numbers")
    totals.catch_up()
    totals.add(1, {0: POLLED}, {})
    generations.plan(generations.claim(), [TaskPlan(ranges=())], 1)
    source = SourceProgress(state="RUNNING", records=80, transactions=2, rate=12.5)
    row = TaskProgress(generation=2, attempt=1, partitions=(), measures=POLLED, source=source)
    table.write(store, progress_key("numbers", 0), row, None)
    StatusKeeper(store, "numbers", "here:7#1", SystemWallClock()).become(state)


class Page:
    """The result of one scrape."""

    def __init__(self, store: MemoryStore, task_slots: TaskSlots | None = None) -> None:
        self.text = exposition(Herder(store), "", task_slots)[0].decode()
        self.families = list(text_string_to_metric_families(self.text))

    def value(self, name: str, /, **labels: str) -> float | None:
        """Return the value of a sample, or None if the sample does not exist."""
        found = [
            sample.value
            for family in self.families
            for sample in family.samples
            if (sample.name, sample.labels) == (name, labels)
        ]
        assert len(found) <= 1
        return found[0] if found else None

    def labels(self, name: str) -> Iterator[dict[str, str]]:
        return (s.labels for family in self.families for s in family.samples if s.name == name)


def test_every_metric_is_on_the_page_with_its_type_and_meaning(store: Counting) -> None:
    archive(store)
    numbers(store)
    page = Page(store, TaskSlots(8, {"archive": ConnectorSlots(running=2, waiting=1, longest=7.5)}))

    found = {family.name: family for family in page.families}
    for metric in METRICS:
        name = metric.prometheus_name
        family = found[name.removesuffix("_total") if metric.kind == "counter" else name]
        assert family.type == {"untyped": "unknown"}.get(metric.kind, metric.kind), name
        assert family.documentation == metric.description.replace("`", "")
        assert family.samples, name
        assert all(set(sample.labels) == set(metric.labels) for sample in family.samples)
    assert len([name for name in found if not name.startswith("process_")]) == len(METRICS)


def test_last_commit_timestamps_are_exported(store: Counting) -> None:
    archive(store)
    page = Page(store)

    labels = {"connector": "archive", "topic": "orders"}
    assert page.value("sinksdk_partition_last_commit_timestamp_seconds", **labels, partition="0") == 1_000
    assert page.value("sinksdk_partition_last_commit_timestamp_seconds", **labels, partition="1") == 1_060
    assert page.value("sinksdk_connector_last_commit_timestamp_seconds", connector="archive") == 1_060


def test_spark_task_slots_are_counted_by_connector() -> None:
    held = {"archive": ConnectorSlots(running=2, longest=7.5), "late": ConnectorSlots(waiting=3)}
    page = Page(MemoryStore(), TaskSlots(8, held))

    assert page.value("sinksdk_spark_task_slots") == 8
    assert page.value("sinksdk_spark_task_slots_used", connector="archive") == 2
    assert page.value("sinksdk_spark_task_slot_used_seconds", connector="archive") == 7.5
    assert page.value("sinksdk_spark_tasks_waiting", connector="archive") == 0
    assert page.value("sinksdk_spark_tasks_waiting", connector="late") == 3


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("sink_task_metrics_partition_count", 2),
        ("sink_task_metrics_put_batch_avg_time_ms", 500),
        ("sink_task_metrics_put_batch_max_time_ms", 1_000),
        ("sink_task_metrics_sink_record_read_total", 1_100),
        ("sink_task_metrics_sink_record_send_total", 1_070),
        ("sink_task_metrics_sink_record_read_rate", 5.5),
        ("sink_task_metrics_sink_record_active_count", 20),
        ("sink_task_metrics_sink_record_active_count_max", 60),
        ("sink_task_metrics_sink_record_active_count_avg", 30),
        ("sink_task_metrics_sink_record_lag_max", 15),
        ("sink_task_metrics_offset_commit_seq_no", 10),
        ("sink_task_metrics_offset_commit_completion_total", 7),
        ("connector_task_metrics_batch_size_avg", 20),
        ("connector_task_metrics_batch_size_max", 30),
        ("connector_task_metrics_offset_commit_avg_time_ms", pytest.approx(100)),
        ("connector_task_metrics_offset_commit_max_time_ms", 200),
        ("connector_task_metrics_offset_commit_success_percentage", 0.75),
        ("connector_task_metrics_offset_commit_failure_percentage", 0.25),
        ("task_error_metrics_total_record_failures", 12),
        ("task_error_metrics_total_record_errors", 1),
        ("task_error_metrics_total_records_skipped", 11),
        ("task_error_metrics_total_retries", 4),
        ("task_error_metrics_total_errors_logged", 10),
        ("task_error_metrics_deadletterqueue_produce_requests", 9),
        ("task_error_metrics_deadletterqueue_produce_failures", 1),
        ("task_error_metrics_last_error_timestamp", 1_700_000_000_250),
    ],
)
def test_connects_metrics_of_sink_tasks_are_exported(store: Counting, attribute: str, value: Any) -> None:
    # Counters cover both generations. Metrics that Connect computes over a window cover the newer one.
    archive(store)
    assert Page(store).value(f"kafka_connect_{attribute}", **TASK) == value


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("source_task_metrics_source_record_poll_total", 200),
        ("source_task_metrics_source_record_write_total", 160),
        ("source_task_metrics_source_record_write_rate", 12.5),
        ("source_task_metrics_source_record_active_count", 5),
        ("source_task_metrics_source_record_active_count_max", 60),
        ("source_task_metrics_source_record_active_count_avg", 30),
        ("source_task_metrics_poll_batch_avg_time_ms", 500),
        ("source_task_metrics_poll_batch_max_time_ms", 1_000),
        ("source_task_metrics_transaction_size_avg", 40),
        ("source_task_metrics_transaction_size_max", 60),
        ("source_task_metrics_transaction_size_min", 20),
        ("connector_task_metrics_batch_size_avg", 25),
        ("connector_task_metrics_batch_size_max", 60),
        ("connector_task_metrics_offset_commit_avg_time_ms", 250),
        ("connector_task_metrics_offset_commit_success_percentage", 0.5),
        ("task_error_metrics_total_record_failures", 6),
        ("task_error_metrics_total_record_errors", 2),
        ("task_error_metrics_total_retries", 4),
    ],
)
def test_connects_metrics_of_source_tasks_are_exported(store: Counting, attribute: str, value: Any) -> None:
    # Counters cover both generations. Metrics that Connect computes over a window cover the newer one.
    numbers(store)
    assert Page(store).value(f"kafka_connect_{attribute}", **SOURCE_TASK) == value


def test_sinks_and_sources_have_only_their_own_metrics(store: Counting) -> None:
    archive(store)
    numbers(store)
    page = Page(store)

    of_sinks = [metric.prometheus_name for metric in METRICS if metric.group == "sink-task-metrics"]
    of_sources = [metric.prometheus_name for metric in METRICS if metric.group == "source-task-metrics"]
    for names, connector in (
        ([*of_sinks, "sinksdk_task_put_seconds_sum", "sinksdk_task_closings_total"], "archive"),
        ([*of_sources, "sinksdk_task_poll_seconds_sum", "sinksdk_task_transactions_total"], "numbers"),
    ):
        for name in names:
            assert {labels["connector"] for labels in page.labels(name)} == {connector}, name


@pytest.mark.parametrize("state", ["FAILED", "PAUSED", "STOPPED"])
def test_a_stopped_source_task_has_no_active_records(store: Counting, state: State) -> None:
    numbers(store, state)
    page = Page(store)

    prefix = "kafka_connect_source_task_metrics_source_record"
    assert page.value(f"{prefix}_active_count", **SOURCE_TASK) == 0
    assert page.value(f"{prefix}_write_total", **SOURCE_TASK) == 160


@pytest.mark.parametrize(
    ("name", "labels", "value"),
    [
        ("connector_readable", {}, 1),
        ("connector_has_driver", {}, 1),
        ("connector_generation", {}, 2),
        ("connector_missing_topics", {}, 1),
        ("partition_committed_offset", {"topic": "orders", "partition": "0"}, 60),
        ("partition_committed_offset", {"topic": "orders", "partition": "1"}, None),
        ("partition_end_offset", {"topic": "orders", "partition": "0"}, 100),
        ("partition_lag", {"topic": "orders", "partition": "0"}, 40),
        ("partition_lag", {"topic": "orders", "partition": "1"}, 40),
        ("partition_failures", {"topic": "orders", "partition": "1"}, 3),
        ("partition_counted_total", {"topic": "orders", "partition": "0", "name": "files"}, 9),
        ("connector_deleted_partitions_counted_total", {"name": "files"}, 4),
        ("task_put_seconds_sum", {"task": "0"}, 7.0),
        ("task_put_seconds_count", {"task": "0"}, 14),
        ("task_offset_commit_seconds_sum", {"task": "0"}, 2.3),
        ("task_commit_writes_total", {"task": "0"}, 5),
        ("task_commit_failures_total", {"task": "0"}, 3),
        ("task_phase_seconds_total", {"task": "0", "phase": "put"}, 8.0),
        ("task_closings_total", {"task": "0"}, 1),
        ("task_closing_seconds_total", {"task": "0", "phase": "publish"}, 0.5),
    ],
)
def test_sinksdks_own_metrics_are_exported(
    store: Counting, name: str, labels: dict[str, str], value: Any
) -> None:
    archive(store)
    assert Page(store).value(f"sinksdk_{name}", connector="archive", **labels) == value


def test_states_are_exported_as_labels(store: Counting) -> None:
    archive(store)
    page = Page(store)

    assert list(page.labels("kafka_connect_connector_metrics_status")) == [
        {"connector": "archive", "status": "running"}
    ]
    assert list(page.labels("kafka_connect_connector_metrics_connector_class")) == [
        {"connector": "archive", "connector_class": "s3-archiver"}
    ]
    assert list(page.labels("kafka_connect_connector_task_metrics_status")) == [
        {**TASK, "status": "restarting"}
    ]
    assert (
        page.value(
            "kafka_connect_connect_worker_metrics_connector_restarting_task_count", connector="archive"
        )
        == 1
    )
    assert page.value("kafka_connect_connect_worker_metrics_task_count") == 1


def test_a_task_number_that_is_not_planned_keeps_its_counters(store: Counting) -> None:
    archive(store)
    page = Page(store)

    name = "kafka_connect_sink_task_metrics_sink_record_read_total"
    assert page.value(name, connector="archive", task="1") == 5
    assert page.value("kafka_connect_sink_task_metrics_partition_count", connector="archive", task="1") == 0


@pytest.mark.parametrize("state", ["FAILED", "PAUSED", "STOPPED"])
def test_a_task_that_does_not_run_has_no_partitions(store: Counting, state: State) -> None:
    # See KAFKA-15680.
    archive(store, state)
    page = Page(store)

    assert page.value("kafka_connect_sink_task_metrics_partition_count", **TASK) == 0
    assert page.value("kafka_connect_sink_task_metrics_sink_record_active_count", **TASK) == 0
    assert page.value("kafka_connect_sink_task_metrics_sink_record_read_total", **TASK) == 1_100


def test_a_connector_that_never_ran_has_a_status_and_no_averages(store: Counting) -> None:
    Herder(store).create("archive", {"name": "archive"})
    page = Page(store)

    assert list(page.labels("kafka_connect_connector_metrics_status")) == [
        {"connector": "archive", "status": "unassigned"}
    ]
    assert page.value("sinksdk_connector_has_driver", connector="archive") == 0
    assert list(page.labels("kafka_connect_sink_task_metrics_put_batch_avg_time_ms")) == []


def test_label_values_are_escaped(store: Counting) -> None:
    name = 'a "b"\\c\nd'
    Herder(store).create(name, {"name": name})

    assert Page(store).value("sinksdk_connector_readable", connector=name) == 1


def test_a_damaged_connector_is_unreadable_and_does_not_hide_the_others(store: Counting) -> None:
    archive(store)
    Herder(store).create("other", {"name": "other"})
    plan = store.get(plan_key("archive", 2))
    assert plan is not None
    store.delete(plan_key("archive", 2), plan.version)
    page = Page(store)

    assert page.value("sinksdk_connector_readable", connector="archive") == 0
    assert page.value("sinksdk_connector_readable", connector="other") == 1
    assert page.value("kafka_connect_connect_worker_metrics_connector_count") == 2
    assert page.value("sinksdk_connector_generation", connector="archive") is None


def test_metrics_of_an_unavailable_store_are_an_error(store: Counting) -> None:
    archive(store)
    store.is_away = True
    with pytest.raises(StoreUnavailable):
        Page(store)


def test_a_scrape_reads_the_store_a_bounded_number_of_times(store: Counting) -> None:
    # Without snapshots, the page takes ten reads of a connector, and two of each of its tasks.
    archive(store)
    store.reads = 0
    Page(store)

    assert store.reads == 10 + 2


def test_the_accept_header_selects_openmetrics(store: Counting) -> None:
    archive(store)
    body, content_type = exposition(Herder(store), "application/openmetrics-text; version=1.0.0")

    assert content_type.startswith("application/openmetrics-text")
    families = [family.name for family in open_metrics(body.decode())]
    assert len([name for name in families if not name.startswith("process_")]) == len(METRICS)
    assert {"process_open_fds", "process_max_fds", "process_resident_memory_bytes"} <= {*families}


def test_the_next_attempt_of_a_waiting_partition_is_exported(store: Counting) -> None:
    archive(store)
    page = Page(store)

    labels = {"connector": "archive", "topic": "orders", "partition": "1"}
    assert page.value("sinksdk_partition_next_attempt_timestamp_seconds", **labels) == 1_090
    assert list(page.labels("sinksdk_partition_next_attempt_timestamp_seconds")) == [labels]
