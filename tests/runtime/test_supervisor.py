from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from sinksdk import (
    ClosingReason,
    ConfigException,
    ConnectException,
    ConnectorConfig,
    FencedException,
)
from sinksdk.control.requests import ClosingSignal
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import PartitionOutcome, TransformFailure
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.outcomes import partition_outcomes
from sinksdk.runtime.session import DriverSession
from sinksdk.runtime.supervisor import Ended, Rows, Supervisor
from sinksdk.store import StoreRefused, StoreUnavailable, table
from sinksdk.store.base import Stored
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    progress_key,
)
from sinksdk.store.ledger import current_plan
from sinksdk.store.records import GenerationPlan, TaskPlan
from sinksdk.store.reports import (
    TaskProgress,
)
from sinksdk.testing import ManualClock
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sinks import RAW, Connector

TP = TopicPartition("t", 0)


class Running:
    def __init__(self, clock: ManualClock, looks: int) -> None:
        self.clock = clock
        self.looks = looks
        self.happens: Callable[[], None] = lambda: None
        self.is_cancelled = False
        self.tells: Callable[[], Sequence[TaskResult]] = lambda: [
            TaskResult(0, 1, [PartitionOutcome.unread(TP, 0, None)], 0)
        ]

    def launch(self, plan: GenerationPlan) -> Running:
        return self

    def wait(self, timeout: float) -> bool:
        self.clock.advance(timeout)
        self.looks -= 1
        self.happens()
        return self.looks <= 0 or self.is_cancelled

    def results(self) -> Sequence[TaskResult]:
        return self.tells()

    def cancel(self) -> None:
        self.is_cancelled = True


class MoodyStore(MemoryStore):
    error: Exception | None = None

    def _read(self, key: str) -> Stored | None:
        if self.error is not None:
            raise self.error
        return super()._read(key)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        if self.error is not None:
            raise self.error
        return super()._write(key, stored, if_version)


class Site:
    def __init__(self, looks: int) -> None:
        self.store = MoodyStore()
        self.clock = ManualClock()
        self.signal = ClosingSignal()
        raw = {**RAW, "task.shutdown.graceful.timeout.ms": "5000"}
        environment = Environment(self.store, self.clock, signal=self.signal)
        self.session = DriverSession(environment, Connector(), ConnectorConfig.parse(raw), raw)
        self.generations = self.session.generations
        self.running = Running(self.clock, looks)
        ranges = (RangePlan(topic="t", partition=0, start=0, end=10),)
        self.plan: GenerationPlan = self.generations.plan(
            self.generations.claim(), [TaskPlan(ranges=ranges)], 1
        )
        self.closed: list[ClosingReason] = []

    def run(self) -> list[PartitionOutcome]:
        return partition_outcomes(self.ended(), self.plan)

    def ended(self) -> Ended[TaskResult]:
        ended = Supervisor(self.session, close_for_hanging, self.closed.append).run(self.running, self.plan)
        assert ended is not None
        return ended


def close_for_hanging(rows: Rows) -> ClosingReason | None:
    return ClosingReason.FAILURE if any(row.hangs for row in rows.values()) else None


@pytest.mark.parametrize("error", [StoreUnavailable("down"), StoreRefused("no permission")])
def test_store_errors_do_not_end_a_generation(error: Exception) -> None:
    site = Site(looks=50)

    def moods() -> None:
        site.store.error = error if 10 < site.running.looks < 40 else None

    site.running.happens = moods

    assert [outcome.partition for outcome in site.run()] == [TP]
    assert not site.running.is_cancelled


def test_a_newer_driver_ends_the_generation_and_its_job() -> None:
    site = Site(looks=100)

    def replaced() -> None:
        if site.running.looks == 80:
            Generations(site.store, "c").claim()

    site.running.happens = replaced

    with pytest.raises(FencedException, match="newer driver took over"):
        site.run()
    assert site.running.is_cancelled


def test_a_driver_that_waits_to_take_over_makes_the_generation_close() -> None:
    site = Site(looks=10_000)

    def request_handover() -> None:
        if site.running.looks == 9_980:
            plan = site.store.get("connectors/c/generations/000000000001")
            assert plan is not None
            closing = {"reason": "REBALANCE", "timeout": 5.0, "successor": "other:1#1"}
            site.store.put(
                "connectors/c/generations/000000000001", {**plan.value, "closing": closing}, plan.version
            )

    site.running.happens = request_handover
    site.run()

    assert site.closed == [ClosingReason.REBALANCE]
    assert site.running.is_cancelled
    ended = site.clock.now() - 1_000 - 30  # the fake takes the 30 s that Spark may take for a cancelled job
    assert ended < 2 + 1 + 5 + 2 + 1
    assert current_plan(site.store, "c", 1) is not None
    assert site.generations.yield_to_successor() == "other:1#1"


def test_a_task_without_a_report_has_the_measures_of_its_progress() -> None:
    site = Site(looks=10_000)
    site.running.tells = no_results
    partition = PartitionOutcome(TopicPartition("t", 0), 5, 7, 7, 2, 7, counts={"files": 2})
    measures = TaskMeasures(records_read=7)
    row = TaskProgress(generation=1, attempt=1, partitions=(partition,), measures=measures)
    table.write(site.store, progress_key("c", 0), row, None)
    site.signal.request(ClosingReason.SHUTDOWN)

    ended = site.ended()
    (outcome,) = partition_outcomes(ended, site.plan)
    assert ended.measures == {0: measures}
    assert (outcome.committed, outcome.records, outcome.tail, outcome.counts) == (5, 5, 0, {"files": 2})


def test_measures_come_from_the_task_reports() -> None:
    # A task's result is newer than its last progress.
    site = Site(looks=3)
    outcomes = [PartitionOutcome.unread(TP, 0, None)]
    measures = TaskMeasures(records_read=9)
    site.running.tells = lambda: [TaskResult(0, 1, outcomes, measures=measures)]
    row = TaskProgress(generation=1, attempt=1, partitions=(), measures=TaskMeasures(records_read=7))
    table.write(site.store, progress_key("c", 0), row, None)

    assert site.ended().measures == {0: measures}


def test_the_close_request_has_its_time() -> None:
    # Only after that can each task report its close latency.
    site = Site(looks=10)
    site.signal.request(ClosingReason.REBALANCE)
    site.run()

    plan = current_plan(site.store, "c", 1)
    assert plan is not None
    assert plan.closing is not None
    assert plan.closing.asked == pytest.approx(site.clock.time(), abs=1.0)


def test_the_reason_for_closing_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(looks=10)
    site.signal.request(ClosingReason.REBALANCE)
    with caplog.at_level("INFO", "sinksdk"):
        site.run()
    assert [r.getMessage() for r in caplog.records if "closes" in r.getMessage()] == [
        "connector c: its generation closes (REBALANCE)"
    ]


def no_results() -> list[TaskResult]:
    message = "the Spark job was cancelled"
    raise ConnectException(message)


def test_a_hanging_task_is_cancelled_after_the_others_have_closed() -> None:
    site = Site(looks=1000)

    def hang() -> None:
        progress = TaskProgress(generation=1, attempt=1, partitions=(), hangs="c, task 0: it is at\nput")
        if site.store.get(progress_key("c", 0)) is None:
            table.write(site.store, progress_key("c", 0), progress, None)

    site.running.happens = hang
    site.running.tells = list
    began = site.clock.now()
    (outcome,) = site.run()

    assert site.closed == [ClosingReason.FAILURE]
    assert site.running.is_cancelled
    assert outcome.failure is not None
    assert (outcome.failure.message, outcome.failure.trace) == (
        "c, task 0: it is at",
        "c, task 0: it is at\nput",
    )
    assert site.clock.now() - began < 40


def test_an_unavailable_store_delays_the_cancellation_of_the_job() -> None:
    site = Site(looks=1_000)
    away = 60.0
    site.store.error = StoreUnavailable("no answer")
    began = site.clock.now()

    def moods() -> None:
        if site.clock.now() - began > away:
            site.store.error = None
        if site.closed:
            site.running.looks = 0  # from here on the tasks are closing

    site.running.happens = moods
    site.signal.request(ClosingReason.REBALANCE, final=False)
    site.run()

    assert site.closed == [ClosingReason.REBALANCE]
    assert not site.running.is_cancelled
    assert site.clock.now() - began == pytest.approx(away, abs=1.5)


def test_a_stopping_process_does_not_wait_for_the_store() -> None:
    # If tasks cannot receive the close request, their job is cancelled after the graceful timeout.
    site = Site(looks=10_000)
    site.store.error = StoreUnavailable("no answer")
    site.running.tells = list
    cancelled_at = list[float]()
    began, cancel = site.clock.now(), site.running.cancel

    def note() -> None:
        cancelled_at.append(site.clock.now() - began)
        site.store.error = None
        cancel()

    site.running.cancel = note  # type: ignore[method-assign]
    site.signal.request(ClosingReason.SHUTDOWN)
    site.run()

    assert cancelled_at == [pytest.approx(5 + 2, abs=0.5)]


def test_executors_that_cannot_run_its_tasks_fail_it_at_once() -> None:
    site = Site(looks=3)

    def results() -> list[TaskResult]:
        message = "the executors' Python has no module 'sinksdk'"
        raise ConfigException(message)

    site.running.tells = results

    with pytest.raises(ConfigException, match="no module"):
        site.run()


CAST = "[CAST_INVALID_INPUT] The value '0.0' cannot be cast to \"BIGINT\". SQLSTATE: 22018"


def test_a_failing_transform_names_the_record_and_fails_the_connector() -> None:
    # The record comes after the last offset that the task accepted; ranges before that one are read. No retry
    # can help.
    site = Site(looks=3)
    others = [RangePlan(topic="t", partition=number, start=0, end=10) for number in (1, 2)]
    first, second = site.plan.tasks[0], TaskPlan(ranges=tuple(others))
    site.plan = site.plan.model_copy(update={"tasks": (first, second)})
    row = PartitionOutcome(TopicPartition("t", 1), 2, 4, 4, 0, 4)
    progress = TaskProgress(generation=1, attempt=1, partitions=(row,), measures=TaskMeasures())
    table.write(site.store, progress_key("c", 1), progress, None)

    def failed() -> list[TaskResult]:
        raise TransformFailure("records.sql", CAST, task=1)

    site.running.tells = failed
    outcomes = {outcome.partition.partition: outcome for outcome in site.run()}
    sentence = f"'records.sql' fails for a record of t-1 from offset 4 on, or of t-2 from offset 0 on: {CAST}"
    assert {number: outcome.failure.message for number, outcome in outcomes.items() if outcome.failure} == (
        dict.fromkeys((0, 1, 2), sentence)
    )
    assert [number for number, o in outcomes.items() if o.failure and o.failure.is_final] == [1]
    assert outcomes[1].position == 4
