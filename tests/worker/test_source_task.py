"""Attempts at a source's task: real take-over and real engine, in threads of this process."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from sinksdk import ClosingReason, ConfigException, ConnectException
from sinksdk.model.outcome import End
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceRecord, SourceTask
from sinksdk.spark.task_slots import check_task_slots
from sinksdk.store import table
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    progress_key,
)
from sinksdk.store.records import (
    Closing,
    GenerationPlan,
    TaskPlan,
)
from sinksdk.store.reports import (
    SourceProgress,
    TaskProgress,
)
from sinksdk.topics.memory import MemoryTopics
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from sinksdk.worker.task_result import SourceTaskResult, from_rows, to_row
from tests.helpers.memory_store import MemoryStore
from tests.helpers.memory_target import MemoryTarget
from tests.runtime.running_sources import eventually


class Deaf(SourceTask):
    polling, release = threading.Event(), threading.Event()

    def poll(self) -> Sequence[SourceRecord]:
        self.polling.set()
        self.release.wait(20)
        return [SourceRecord({"p": 1}, {"o": 1}, "t", b"too late")]


class Patient(SourceTask):
    starts: list[int] = []  # noqa: RUF012 - of all instances

    def start(self, config: Any) -> None:
        self.stopping = threading.Event()
        self.starts.append(1)

    def poll(self) -> Sequence[SourceRecord]:
        self.stopping.wait(20)
        return [SourceRecord({"p": 1}, {"o": 1}, "t", b"last")]

    def stop(self) -> None:
        self.stopping.set()


class Late(Patient):
    # start() returns after the driver has given it up.
    release = threading.Event()

    def start(self, config: Any) -> None:
        super().start(config)
        self.release.wait(20)


class Unmakeable(SourceTask):
    def __init__(self) -> None:
        message = "no licence"
        raise ConnectException(message)

    def poll(self) -> None:
        raise AssertionError


class DeafSource(SourceConnector):
    config_class, task_class = SourceConnectorConfig, Deaf


class PatientSource(SourceConnector):
    config_class, task_class = SourceConnectorConfig, Patient


class LateSource(SourceConnector):
    config_class, task_class = SourceConnectorConfig, Late


class UnmakeableSource(SourceConnector):
    config_class, task_class = SourceConnectorConfig, Unmakeable


class Scene:
    def __init__(self, connector: type[SourceConnector], **settings: str) -> None:
        Patient.starts = []
        self.store, self.topics = MemoryStore(), MemoryTopics()
        self.generations = Generations(self.store, "c")
        raw = {
            "name": "c",
            "connector.class": f"{__name__}:{connector.__name__}",
            "closing.poll.ms": "10",
            **settings,
        }
        self.plan: GenerationPlan = self.generations.plan(
            self.generations.claim(), [TaskPlan(ranges=())], 1, raw, transactional_tasks=1
        )
        self.ends: list[SourceTaskResult | Exception] = []

    def begin(self) -> threading.Thread:
        spec = GenerationSpec("memory:", "id", "c", self.plan.generation, target=MemoryTarget(self.topics))

        def run() -> None:
            try:
                self.ends.append(run_source_attempt(spec, self.store, 0))
            except Exception as error:  # noqa: BLE001 - the test checks it
                self.ends.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def request_close(self, timeout: float = 20.0) -> None:
        self.generations.close_running(Closing(reason=ClosingReason.STOP, timeout=timeout))

    def ended(self) -> SourceTaskResult:
        eventually(lambda: self.ends)
        (end,) = self.ends
        assert isinstance(end, SourceTaskResult), end
        return end

    def progress(self) -> SourceProgress:
        row = table.read(self.store, progress_key("c", 0), TaskProgress)
        return row.value.source if row and row.value.source else SourceProgress(state="")

    def hangs(self) -> bool:
        row = table.read(self.store, progress_key("c", 0), TaskProgress)
        return row is not None and row.value.hangs is not None

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.topics.records("t")]


def test_records_returned_by_the_last_poll_are_committed() -> None:
    scene = Scene(PatientSource)
    scene.begin()
    eventually(lambda: Patient.starts)
    scene.request_close()

    result = scene.ended()
    assert (result.outcome.end, result.outcome.records, result.attempt) == (End.STOPPED, 1, 1)
    assert scene.values() == [b"last"]


def test_a_task_whose_poll_never_returns_is_cancelled() -> None:
    Deaf.polling.clear()
    Deaf.release.clear()
    scene = Scene(DeafSource)
    thread = scene.begin()
    assert Deaf.polling.wait(20)
    scene.request_close(timeout=0.1)
    thread.join(0.6)
    assert thread.is_alive()
    eventually(scene.hangs)
    Deaf.release.set()

    assert scene.ended().outcome.end is End.CANCELLED
    assert scene.values() == []


def test_a_task_started_after_a_close_request_gets_no_call() -> None:
    # The task ends without a call of the author's code, and without a writer that would fence.
    scene = Scene(PatientSource)
    scene.request_close()
    scene.begin()

    assert scene.ended().outcome.end is End.ABANDONED
    assert (Patient.starts, scene.topics.epochs) == ([], {})


def test_a_task_that_cannot_be_created_is_reported_at_once() -> None:
    scene = Scene(UnmakeableSource)
    scene.begin()

    outcome = scene.ended().outcome
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert scene.progress().failure == outcome.failure.message == "no licence"


def test_a_start_that_hangs_fails_even_if_it_returns() -> None:
    # The failure is reported while start hangs; the other tasks and the job continue. Nothing is polled
    # later.
    Late.release.clear()
    scene = Scene(LateSource, **{"task.hang.timeout.ms": "50"})
    scene.begin()
    eventually(lambda: scene.progress().failure)
    assert scene.ends == []
    Late.release.set()

    outcome = scene.ended().outcome
    assert (outcome.end, outcome.records) == (End.FAILED, 0)
    assert outcome.failure is not None
    assert scene.progress().failure == outcome.failure.message
    assert re.search(r"task 0: start has not returned for \d+\.\d s", outcome.failure.message)
    assert "self.release.wait(20)" in outcome.failure.trace
    assert scene.values() == []


def test_the_latest_attempt_owns_the_task() -> None:
    # Spark runs the task again elsewhere: the earlier attempt is fenced.
    scene = Scene(PatientSource)
    scene.begin()
    eventually(lambda: len(Patient.starts) == 1)
    scene.begin()
    eventually(lambda: len(Patient.starts) == 2)
    scene.request_close()
    eventually(lambda: len(scene.ends) == 2)

    results = [end for end in scene.ends if isinstance(end, SourceTaskResult)]
    assert [(result.attempt, result.outcome.end) for result in results] == [(2, End.STOPPED)]
    assert [str(end) for end in scene.ends if not isinstance(end, SourceTaskResult)] == [
        "connector c, task 0: generation 1 is closing"
    ]
    assert scene.values() == [b"last"]


def test_a_foreign_writer_with_the_same_transactional_id_is_a_failure() -> None:
    scene = Scene(PatientSource)
    scene.begin()
    eventually(lambda: Patient.starts)
    scene.topics.take_over("sinksdk-c-0")
    scene.request_close()

    outcome = scene.ended().outcome
    assert outcome.end is End.FENCED
    assert outcome.failure is not None
    assert "transactional id sinksdk-c-0: epoch 1 was fenced by epoch 2" in outcome.failure.message
    assert scene.values() == []


def test_a_task_result_is_unchanged_after_serialization() -> None:
    scene = Scene(UnmakeableSource)
    scene.begin()
    result = scene.ended()

    assert from_rows(SourceTaskResult, [to_row(result)]) == [result]


@pytest.mark.parametrize("master", ["local[2,4]", "local-cluster[2,1,1024]"])
def test_more_source_tasks_than_local_task_slots_are_refused(master: str) -> None:
    # A source's tasks run as long as the source: a task without a slot would never start.
    context: Any = SimpleNamespace(defaultParallelism=2, master=master)
    check_task_slots(context, 2)
    with pytest.raises(ConfigException, match=" has 2: lower "):
        check_task_slots(context, 3)


def test_task_slots_of_a_local_cluster_count_executors_that_have_not_started() -> None:
    # Spark counts only executors that have started, or says two.
    context: Any = SimpleNamespace(defaultParallelism=2, master="local-cluster[2, 2, 1024]")
    check_task_slots(context, 4)


def test_too_few_task_slots_of_a_cluster_are_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    context: Any = SimpleNamespace(defaultParallelism=2, master="spark://host:7077")
    check_task_slots(context, 3)
    assert "the others wait for executors" in caplog.text


def test_configurations_of_tasks_reach_them() -> None:
    seen: list[Mapping[str, str]] = []

    class Telling(Patient):
        def start(self, config: Any) -> None:
            super().start(config)
            seen.append(self.context.configs())

    PatientSource.task_class = Telling
    try:
        scene = Scene(PatientSource)
        claim = scene.generations.claim()
        tasks = [TaskPlan(ranges=(), config={"share": "7"})]
        scene.plan = scene.generations.plan(claim, tasks, 1, scene.plan.config, transactional_tasks=1)
        scene.begin()
        eventually(lambda: seen)
        scene.request_close()
        scene.ended()
    finally:
        PatientSource.task_class = Patient

    assert seen == [{**scene.plan.config, "share": "7"}]
