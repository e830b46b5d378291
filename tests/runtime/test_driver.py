"""The driver's decisions, with tasks that run immediately in this process."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from sinksdk import (
    BatchPolicy,
    ClosingReason,
    ConfigException,
    ConnectException,
    ConnectorConfig,
    FencedException,
    MissingSourceTopicException,
    OffsetAndMetadata,
    OffsetRange,
    RetriableException,
    SinkRecords,
    TopicPartition,
)
from sinksdk.control.history import read_totals
from sinksdk.control.info import connector_info
from sinksdk.control.progress import Listener
from sinksdk.control.status import read_status
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.plan import RangePlan
from sinksdk.model.status import PartitionStatus
from sinksdk.store import committed_offsets, table
from sinksdk.store.base import Lost
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    config_key,
    history_key,
    plans_prefix,
    progress_key,
    status_key,
)
from sinksdk.store.records import Closing, ConnectorRecord, GenerationPlan
from sinksdk.store.reports import (
    ConnectorHistory,
    ConnectorStatus,
    TaskProgress,
)
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import (
    P0,
    P1,
    Connector,
    Finished,
    InProcess,
    Source,
    Task,
    Undiscardable,
    driver,
)


def test_until_caught_up_ends_when_all_records_are_committed() -> None:
    made, launcher, connector = driver(Source({P0: 10, P1: 5}))

    made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c") == {P0: OffsetAndMetadata(10), P1: OffsetAndMetadata(5)}
    assert (len(launcher.plans), connector.heard, connector.stops) == (1, [["t"]], [False])


class Counting(Task):
    def put(self, records: SinkRecords) -> None:
        self.context.count(records.partition, rows=len(records))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (None, "must return a list of dictionaries"),
        ([["a"]], "must return a list of dictionaries"),
        ([{"flush.size": 3}], "must return dictionaries of strings"),
        ([], "returned no configurations"),
        (itertools.repeat({}), "returned too many configurations"),
    ],
)
def test_an_invalid_task_configs_result_names_the_method(returned: Any, message: str) -> None:
    class Nonsense(Connector):
        def task_configs(self, max_tasks: int) -> Any:
            return returned

    made, _, _ = driver(Source({P0: 10}), connector=Nonsense())
    with pytest.raises(ConnectException, match=rf"connector c: task_configs\(2\) {message}"):
        made.run(until_caught_up=True)


def test_measures_and_counts_of_generations_are_added_up() -> None:
    made, launcher, _ = driver(Source({P0: 14, P1: 5}), Counting, **{"generation.max.records": 5})
    made.run(until_caught_up=True)

    totals = read_totals(launcher.store, "c")
    assert len(launcher.plans) > 1
    assert totals.generation == launcher.plans[-1].generation
    assert sum(row.total.records_read for row in totals.tasks) == 19
    assert {row.topic_partition: row.counts for row in totals.partitions} == {
        P0: {"rows": 14},
        P1: {"rows": 5},
    }


def test_reports_of_a_crashed_driver_are_added_before_they_are_overwritten() -> None:
    made, launcher, _ = driver(Source({P0: 10}))
    left = TaskProgress(generation=1, attempt=1, partitions=(), measures=TaskMeasures(records_read=7))
    row = table.write(launcher.store, progress_key("c", 0), left, None)
    Generations(launcher.store, "c").claim()
    launch = launcher.launch

    def overwriting(plan: GenerationPlan) -> Finished:
        report = TaskProgress(generation=plan.generation, attempt=1, partitions=())
        table.write(launcher.store, progress_key("c", 0), report, row.version)
        return launch(plan)

    launcher.launch = overwriting  # type: ignore[method-assign]  # after an older report
    made.run(until_caught_up=True)

    assert read_totals(launcher.store, "c").tasks[0].total.records_read == 17


def test_until_caught_up_is_fenced_when_offsets_were_altered_since() -> None:
    # The driver has nothing to read and plans no generation: it must not report success for commits that are
    # gone.

    class Altered(Source):
        def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
            if not altered:
                # 'sinksdk offsets alter' makes this claim.
                altered.append(Generations(launcher.store, "c").claim())
            return super().partitions(subscription)

    altered: list[object] = []
    made, launcher, _ = driver(Altered({P0: 0}))
    with pytest.raises(FencedException):
        made.run(until_caught_up=True)
    assert altered


def test_until_caught_up_without_records_ends_at_once() -> None:
    made, launcher, _ = driver(Source({P0: 0}))

    made.run(until_caught_up=True)

    assert launcher.plans == []


def test_a_backlog_is_cut_into_generations() -> None:
    made, launcher, _ = driver(Source({P0: 25}), **{"generation.max.records": 10})

    made.run(until_caught_up=True)

    assert [plan.tasks[0].ranges[0].end for plan in launcher.plans] == [10, 20, 25]


def test_a_failed_partition_is_retried_without_affecting_the_others() -> None:
    failures = iter([True])

    class Flaky(Task):
        def put(self, records: SinkRecords) -> None:
            if records.partition == P1 and next(failures, False):
                message = "once"
                raise ConnectException(message)

    made, launcher, _ = driver(Source({P0: 3, P1: 3}), Flaky)
    made.run(until_caught_up=True)

    assert {p: o.offset for p, o in committed_offsets(launcher.store, "c").items()} == {P0: 3, P1: 3}
    assert [[r.partition for t in plan.tasks for r in t.ranges] for plan in launcher.plans] == [[0, 1], [1]]


def test_a_listener_gets_the_time_until_a_failed_partition_is_reopened() -> None:
    class Broken(Task):
        def put(self, records: SinkRecords) -> None:
            message = "the disk is on fire"
            raise ConnectException(message)

    class Hearing(Listener):
        def __init__(self) -> None:
            self.waits: list[bool] = []

        def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
            self.waits += [view.opens_in > 0 for view in partitions]

    settings = {"restart.max.attempts": 1, "restart.backoff.ms": 500}
    made, _, _ = driver(Source({P0: 3}), Broken, **settings)
    made.listener = hearing = Hearing()
    with pytest.raises(ConnectException, match="the disk is on fire"):
        made.run(until_caught_up=True)
    assert hearing.waits == [True, False]


def test_a_partition_that_fails_too_often_fails_the_connector_with_its_cause() -> None:
    class Broken(Task):
        def put(self, records: SinkRecords) -> None:
            if records.partition == P1:
                message = "the disk is on fire"
                raise ConnectException(message)

    made, launcher, connector = driver(Source({P0: 3, P1: 3}), Broken, **{"restart.max.attempts": 2})
    with pytest.raises(ConnectException, match=r"t-1 failed .*3 times in a row.*the disk is on fire"):
        made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c")[P0].offset == 3
    assert len(launcher.plans) == 3
    assert connector.stops == [False]
    status = launcher.store.get(status_key("c"))
    assert status is not None
    assert ConnectorStatus.model_validate(status.value).state == "FAILED"


def test_an_order_violation_of_the_source_fails_the_connector_at_once() -> None:
    class Late(InProcess):
        def batches(self, planned: RangePlan) -> list[Sequence[int]]:
            return [range(1, 3), [0]] if planned.topic_partition == P1 else super().batches(planned)

    made, launcher, _ = driver(
        Source({P0: 3, P1: 3}), launcher_class=Late, **{"restart.max.attempts": 20, "tasks.max": 1}
    )
    with pytest.raises(ConnectException, match=r"FAILED: t-1 .*a restart does not help.*late or repeated: 0"):
        made.run(until_caught_up=True)

    assert len(launcher.plans) == 1
    assert {p: entry.offset for p, entry in committed_offsets(launcher.store, "c").items()} == {P0: 3}


def test_a_sink_with_its_own_offsets_skips_and_rewinds() -> None:
    store = MemoryStore()
    driver(Source({P0: 9}), store=store)[0].run(until_caught_up=True)
    read: list[int] = []

    class Restored(Task):
        def open(self, partitions: Any) -> None:
            if not read:
                self.context.offset({P0: 4})

        def put(self, records: SinkRecords) -> None:
            read.extend(record.offset for record in records)

    made, launcher, _ = driver(Source({P0: 12}), Restored, store=store)
    made.run(until_caught_up=True)

    assert read == list(range(4, 12))
    assert [[r.start for t in plan.tasks for r in t.ranges] for plan in launcher.plans] == [[9], [4]]
    assert committed_offsets(store, "c")[P0].offset == 12
    (partition,) = read_status(store, "c").partitions
    assert (partition.failures, partition.failed_at, partition.error) == (0, (), None)


@pytest.mark.parametrize(
    ("begin", "policy", "asked", "message"),
    [
        (0, "fail", 99, r"t-0 at offset 99, but the end offset of the source is 12"),
        (2, "fail", 1, r"t-0 at offset 1, but the first offset of the source is 2.* on\.data\.loss=skip"),
        (2, "skip", 1, None),
    ],
)
def test_a_sink_requests_an_offset_outside_the_log(
    begin: int, policy: str, asked: int, message: str | None
) -> None:
    store = MemoryStore()
    driver(Source({P0: 9}), store=store)[0].run(until_caught_up=True)
    read: list[int] = []

    class Elsewhere(Task):
        def open(self, partitions: Any) -> None:
            if not read:
                self.context.offset({P0: asked})

        def put(self, records: SinkRecords) -> None:
            read.extend(record.offset for record in records)

    class Cut(Source):
        def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
            return {p: OffsetRange(begin, end) for p, end in self.ends.items()}

    made, _, _ = driver(
        Cut({P0: 12}), Elsewhere, store=store, **{"restart.max.attempts": 0, "on.data.loss": policy}
    )
    if message is None:
        made.run(until_caught_up=True)
        assert read == list(range(begin, 12))
        return
    with pytest.raises(ConnectException, match=message):
        made.run(until_caught_up=True)
    assert (read, committed_offsets(store, "c")[P0].offset) == ([], 9)


@pytest.mark.parametrize("window", [600_000, 0])
def test_endless_rewinds_fail_the_connector(window: int, caplog: pytest.LogCaptureFixture) -> None:
    # This sink commits, and then requests the old offset again each time.

    class Forgetful(Task):
        def open(self, partitions: Any) -> None:
            self.context.offset({P0: 1})

    source = Source({P0: 3})

    class Growing(InProcess):
        def launch(self, plan: GenerationPlan) -> Finished:
            source.ends[P0] += 1
            return super().launch(plan)

    made, launcher, _ = driver(source, Forgetful, launcher_class=Growing, **{"restart.window.ms": window})
    with pytest.raises(
        ConnectException, match=r"requested an offset below the commit 6 times within 600 s, the last time 1"
    ):
        made.run()
    assert len(launcher.plans) < 20
    assert "requested an offset below the commit 2 times within 600 s, the last time 1" in caplog.text


def test_rewinds_are_forgotten_after_progress() -> None:
    has: dict[str, int] = {}

    class Lossy(Task):
        def open(self, partitions: Any) -> None:
            if "rows" in has:
                self.context.offset({P0: has["rows"]})

        def put(self, records: SinkRecords) -> None:
            super().put(records)
            has["rows"] = records.next_offset - 1

    source = Source({P0: 2})

    class Growing(InProcess):
        def launch(self, plan: GenerationPlan) -> Finished:
            source.ends[P0] += 3
            if len(self.plans) > 30:
                made.close()
            return super().launch(plan)

    made, launcher, _ = driver(source, Lossy, launcher_class=Growing)
    made.run()
    moves = [
        plan for plan in launcher.plans if plan.committed and plan.committed[0].withdrawn_from is not None
    ]
    assert len(moves) > 8, "it has moved back more often than a connector may that gets no further"


def test_failures_within_the_restart_window_count_despite_progress() -> None:
    turns = itertools.count()

    class Flapping(Task):
        def put(self, records: SinkRecords) -> None:
            if next(turns) % 2:
                message = "every other time"
                raise ConnectException(message)

    settings = {"restart.max.attempts": 2, "generation.max.records": 1}
    made, launcher, _ = driver(Source({P0: 20}), Flapping, **settings)
    with pytest.raises(ConnectException, match=r"3 times in a row or within 600 s.*every other time"):
        made.run(until_caught_up=True)
    assert 0 < committed_offsets(launcher.store, "c")[P0].offset < 20


def test_without_a_restart_window_only_failures_in_a_row_count() -> None:
    turns = itertools.count()

    class Flapping(Task):
        def put(self, records: SinkRecords) -> None:
            if next(turns) % 2:
                message = "every other time"
                raise ConnectException(message)

    settings = {"restart.max.attempts": 2, "generation.max.records": 1, "restart.window.ms": 0}
    made, launcher, _ = driver(Source({P0: 20}), Flapping, **settings)
    made.run(until_caught_up=True)
    assert committed_offsets(launcher.store, "c")[P0].offset == 20


def test_a_failing_discard_is_retried_with_delays_and_does_not_block_the_end() -> None:
    # Regression: tokens that cannot be discarded led to empty generations without a pause or an end.
    made, launcher, _ = driver(Source({P0: 3}), Undiscardable, **{"restart.backoff.ms": 60_000})

    made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c")[P0].offset == 3
    assert len(launcher.plans) == 2
    (status,) = connector_info(launcher.store, "c", 0.0).partitions
    assert status.error is not None
    assert "uncommitted tokens could not be discarded in 2 generations in a row" in status.error
    assert "t-0-1" in status.error


def test_a_failed_discard_is_retried_once_before_the_end() -> None:
    # Regression: a run until caught up left tokens behind, perhaps for months.
    outside: set[str] = set()

    class AwayAtFirst(Task):
        def open(self, partitions: Any) -> None:
            if self.context.generation() == 1:
                self.context.prepared({partition: ["begun"] for partition in partitions})
                outside.add("begun")

        def discard(self, partition: Any, tokens: Any) -> None:
            if self.context.generation() < 2:
                message = "the outside world is away"
                raise ConnectException(message)
            outside.difference_update(token.id for token in tokens)

    made, launcher, _ = driver(Source({P0: 3}), AwayAtFirst, **{"restart.backoff.ms": 60_000})

    made.run(until_caught_up=True)

    assert len(launcher.plans) == 2
    assert not outside


def test_an_unreadable_source_is_queried_again() -> None:
    # Regression: a half-written file ended the run.
    made, launcher, _ = driver(Source({P0: 3}, RetriableException("growing"), RetriableException("growing")))

    made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c")[P0].offset == 3


def test_a_missing_topic_is_raised_to_the_caller() -> None:
    made, _, _ = driver(Source({}, MissingSourceTopicException(["t"])), **{"missing.topic.grace.ms": 0})

    with pytest.raises(MissingSourceTopicException, match="'t'"):
        made.run()


def test_closing_an_idle_driver_stops_it() -> None:
    made, _, connector = driver(Source({P0: 0}))
    thread = threading.Thread(target=made.run)
    thread.start()
    made.close()
    thread.join(5)

    assert not thread.is_alive()
    assert connector.stops == [False]


def test_records_wait_in_the_source_until_a_batch_is_full() -> None:
    class Batched(Connector):
        def batch_policy(self, config: Any) -> BatchPolicy:
            return BatchPolicy(max_records=10, max_wait=None)

    made, launcher, _ = driver(Source({P0: 25}), connector=Batched())
    thread = threading.Thread(target=made.run)
    thread.start()
    while not launcher.plans:
        thread.join(0.01)
    thread.join(0.2)
    made.close()
    thread.join(5)

    assert [(r.start, r.records, r.due) for r in launcher.plans[0].tasks[0].ranges] == [(0, 20, False)]
    assert len(launcher.plans) == 1
    assert committed_offsets(launcher.store, "c") == {P0: OffsetAndMetadata(20)}


def test_a_connector_that_refuses_a_topic_starts_nothing() -> None:
    made, launcher, connector = driver(Source({P0: 3}))

    def refuse(topics: Any) -> None:
        raise ConfigException(f"{topics} belong to somebody else")

    connector.subscribed = refuse  # type: ignore[method-assign]  # of this connector only
    with pytest.raises(ConfigException, match="somebody else"):
        made.run(until_caught_up=True)
    assert launcher.plans == []


def test_a_closing_pre_commit_without_offsets_fails_the_connector() -> None:
    # Regression: records that a closing commit left uncommitted were planned again without end, or skipped
    # silently.

    class Deaf(Task):
        def pre_commit(self, offsets: Any) -> Any:
            return {}

    made, launcher, _ = driver(Source({P0: 3}), Deaf)
    with pytest.raises(
        ConnectException, match=r"t-0: committed offset none, end offset 3, 3 records uncommitted"
    ):
        made.run(until_caught_up=True)

    assert len(launcher.plans) == 1


def test_a_driver_that_fails_to_start_does_not_affect_the_running_one() -> None:
    # Regression: a second run with a bad configuration made the tasks of the first run wait without end.
    made, launcher, _ = driver(Source({P0: 3}))
    made.run(until_caught_up=True)
    other, _, connector = driver(Source({P0: 3}), store=launcher.store, **{"tasks.max": 9})

    def refuse(config: Any) -> None:
        message = "no such bucket"
        raise ConfigException(message)

    connector.start = refuse  # type: ignore[method-assign]  # of this connector only
    with pytest.raises(ConfigException):
        other.run()

    stored = launcher.store.get(config_key("c"))
    assert stored is not None
    assert ConnectorRecord.model_validate(stored.value).config["tasks.max"] == "2"


def test_restart_attempts_are_reset_at_each_start() -> None:
    # Regression: after FAILED, a restarted connector had a single attempt left.

    class Broken(Task):
        def put(self, records: SinkRecords) -> None:
            message = "no"
            raise ConnectException(message)

    made, launcher, _ = driver(Source({P0: 3}), Broken, **{"restart.max.attempts": 1})
    with pytest.raises(ConnectException):
        made.run(until_caught_up=True)
    again, relaunched, _ = driver(
        Source({P0: 3}), Broken, store=launcher.store, **{"restart.max.attempts": 1}
    )
    with pytest.raises(ConnectException):
        again.run(until_caught_up=True)

    assert (len(launcher.plans), len(relaunched.plans)) == (2, 2)


def test_an_unwritable_status_does_not_stop_the_driver() -> None:
    # Regression: an outage of the store while the status was written ended the run, and masked the cause.

    class Unwritable(MemoryStore):
        def _write(self, key: str, stored: Any, if_version: str | None) -> bool:
            if key == status_key("c"):
                message = "disk full"
                raise Lost(message)
            return super()._write(key, stored, if_version)

    made, launcher, _ = driver(Source({P0: 3}), store=Unwritable(patience=0.01))
    made.run(until_caught_up=True)

    assert committed_offsets(launcher.store, "c")[P0].offset == 3


def test_a_stop_with_uncommitted_records_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    # No record is lost, but the operator must know which partitions are read again.

    class Unlucky(Task):
        def put(self, records: SinkRecords) -> None:
            made.close()
            if records.partition == P1:
                message = "the outside world says no"
                raise ConnectException(message)

    made, launcher, _ = driver(Source({P0: 3, P1: 3}), Unlucky)
    made.run()

    (said,) = [r.getMessage() for r in caplog.records if "could not commit all records" in r.getMessage()]
    assert "t-1" in said
    assert "t-0" not in said
    assert committed_offsets(launcher.store, "c")[P0].offset == 3


def request_handover(store: MemoryStore, successor: str) -> None:
    key = plans_prefix("c") + f"{1:012d}"
    found = store.get(key)
    assert found is not None
    closing = Closing(reason=ClosingReason.REBALANCE, timeout=1.0, successor=successor)
    store.put(key, {**found.value, "closing": closing.as_json()}, found.version)


def test_a_driver_gives_way_at_a_handover_request(monkeypatch: pytest.MonkeyPatch) -> None:
    made, launcher, _ = driver(Source({P0: 3}))
    launch = launcher.launch

    def launch_and_request_handover(plan: GenerationPlan) -> Finished:
        finished = launch(plan)
        request_handover(launcher.store, "elsewhere:1#1")
        threading.Timer(0.3, lambda: Generations(launcher.store, "c").claim()).start()
        return finished

    monkeypatch.setattr(launcher, "launch", launch_and_request_handover)
    with pytest.raises(FencedException, match="elsewhere:1#1 requested a handover"):
        made.run()

    assert committed_offsets(launcher.store, "c")[P0].offset == 3


def test_the_older_driver_continues_if_the_newer_driver_dies(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    # The other driver requests a handover, and then does not claim.
    monkeypatch.setattr("sinksdk.runtime.handover._HANDOVER", 0.3)
    source = Source({P0: 3})
    made, launcher, _ = driver(source)
    launch = launcher.launch

    def launch_and_request_handover(plan: GenerationPlan) -> Finished:
        finished = launch(plan)
        if plan.generation == 1:
            request_handover(launcher.store, "elsewhere:1#1")
            source.ends[P0] = 8
        else:
            made.close()
        return finished

    monkeypatch.setattr(launcher, "launch", launch_and_request_handover)
    made.run()

    assert committed_offsets(launcher.store, "c")[P0].offset == 8
    assert any("requested a handover but did not take over" in r.getMessage() for r in caplog.records)


def test_a_generation_runs_with_the_configuration_of_its_plan() -> None:
    # Regression: a replaced driver rewrote the configuration, and the tasks of the newest driver waited
    # without end.
    made, launcher, _ = driver(Source({P0: 3}), **{"poll.interval.ms": 20})
    made.run(until_caught_up=True)

    (plan,) = launcher.plans
    assert plan.config["poll.interval.ms"] == "20"


def test_a_driver_without_a_claim_does_not_write_the_status() -> None:
    # Regression: a new driver with a bad configuration wrote FAILED over the status of the running driver.

    class Refusing(Connector):
        def start(self, config: ConnectorConfig) -> None:
            raise ConfigException("no such bucket")

    made, launcher, _ = driver(Source({P0: 3}), connector=Refusing())
    with pytest.raises(ConfigException):
        made.run()

    assert launcher.store.get(status_key("c")) is None


def test_commits_are_counted_in_the_history() -> None:
    failures = iter([True])

    class Flaky(Task):
        def put(self, records: SinkRecords) -> None:
            if records.partition == P1 and next(failures, False):
                message = "once"
                raise ConnectException(message)
            self.context.count(records.partition, files=1, bytes=10)

    made, launcher, _ = driver(Source({P0: 5, P1: 7}), Flaky, **{"generation.max.records": 6})
    made.run(until_caught_up=True)
    history = table.read(launcher.store, history_key("c"), ConnectorHistory)

    assert len(launcher.plans) > 1
    assert history is not None
    assert sum(bucket.records for bucket in history.value.buckets) == 12
    assert {bucket.bytes // bucket.files for bucket in history.value.buckets} == {10}
    assert [(failure.topic, failure.partition, failure.message) for failure in history.value.failures] == [
        ("t", 1, "once")
    ]
