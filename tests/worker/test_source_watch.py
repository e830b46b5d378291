"""The supervision of a source's task: it requests a stop, gives a hanging task up, and reports progress."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest.mock import Mock

import pytest

from sinksdk import ClosingReason
from sinksdk.engine.hooks import call_author
from sinksdk.engine.source_context import KnownPositions
from sinksdk.errors import ConnectException
from sinksdk.model.measures import ErrorCounts, TaskMeasures, Timing
from sinksdk.model.outcome import End, SourceTaskOutcome, SourceTaskState
from sinksdk.source import RecordMetadata, SourceRecord, SourceTask
from sinksdk.source.positions import SourcePosition
from sinksdk.store import table
from sinksdk.store.base import Lost
from sinksdk.store.generations import Generations
from sinksdk.store.keys import (
    progress_key,
)
from sinksdk.store.records import (
    Closing,
    TaskPlan,
)
from sinksdk.store.reports import (
    SourcePartitionOffset,
    SourceProgress,
    TaskProgress,
)
from sinksdk.testing import ManualClock
from sinksdk.worker.attempts import Attempt
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.progress import SourceProgressWriter
from sinksdk.worker.watches import SourceTaskWatch, WatchedSourceTask
from tests.helpers.memory_store import MemoryStore


class Worker:
    state = SourceTaskState.RUNNING
    records, transactions = 30, 3

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.known = KnownPositions()

    def measures(self, time: float) -> TaskMeasures:
        return TaskMeasures(commits=Timing(self.transactions), errors=ErrorCounts(last=time))

    def stop(self) -> None:
        self.calls.append("stop")

    def cancel(self) -> None:
        self.calls.append("cancel")


class AuthorsTask(SourceTask):
    def __init__(self) -> None:
        self.does: Callable[[], None] = lambda: None

    def start(self, config: object) -> None:
        self.does()

    def poll(self) -> Sequence[SourceRecord] | None:
        self.does()
        return None

    def commit(self) -> None:
        self.does()

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.does()

    def stop(self) -> None:
        self.does()

    def stopped(self) -> None:
        self.does()


CALLS: Mapping[str, Callable[[SourceTask], object]] = {
    "start": lambda task: task.start(None),
    "commit": lambda task: task.commit(),
    "commit_record": lambda task: task.commit_record(SourceRecord({"p": 1}, {"o": 1}, "t", b""), None),
    "stop": lambda task: task.stop(),
    "stopped": lambda task: task.stopped(),
}


class Scene:
    def __init__(self, store: MemoryStore | None = None) -> None:
        self.store = store or MemoryStore()
        self.clock = ManualClock()
        self.generations = Generations(self.store, "c")
        plan = self.generations.plan(self.generations.claim(), [TaskPlan(ranges=())], 1)
        self.spec = GenerationSpec("memory:", "id", "c", plan.generation)
        self.worker: Any = Worker()
        self.progress = SourceProgressWriter(self.attempt(1))
        self.author = AuthorsTask()
        self.beside_runs = True
        self.let_hang(30.0)

    def let_hang(self, timeout: float) -> None:
        # With a time-out of 0 there is no limit.
        self.task = WatchedSourceTask(self.author, self.clock, timeout)
        self.watch = SourceTaskWatch(
            self.attempt(1),
            self.worker,
            self.task,
            self.progress,
            interval=1.0,
            start_call=self.start_call,
        )

    def attempt(self, number: int) -> Attempt:
        taken = Mock()
        taken.ledger.attempt = number
        return Attempt(self.spec, self.store, 0, taken, self.clock)

    def start_call(self, run: Callable[[], None]) -> None:
        if self.beside_runs:
            run()

    def pass_(self, seconds: float) -> None:
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            self.clock.advance(min(self.watch.turn(), until - self.clock.now()))

    def request_close(self, timeout: float) -> None:
        closing = Closing(reason=ClosingReason.STOP, timeout=timeout, asked=self.clock.time())
        self.generations.close_running(closing)

    def row(self) -> TaskProgress:
        row = table.read(self.store, progress_key("c", 0), TaskProgress)
        assert row is not None
        return row.value

    def written(self) -> SourceProgress:
        source = self.row().source
        assert source is not None
        return source


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.mark.parametrize(
    "method", ["initialize", "start", "poll", "commit", "commit_record", "stop", "stopped"]
)
def test_an_error_names_the_method_of_the_task(scene: Scene, method: str) -> None:
    # Regression: each hang was reported as "call raised".
    broken = Mock()
    getattr(broken, method).side_effect = ValueError("no such file")
    task = WatchedSourceTask(broken, scene.clock, 0.0)
    with pytest.raises(ConnectException, match=f"^task 0: {method} raised ValueError: no such file"):
        call_author("task 0", task, method)


def test_a_task_is_stopped_once(scene: Scene) -> None:
    scene.pass_(5)
    assert scene.worker.calls == []
    scene.request_close(timeout=100)
    scene.pass_(1.21)
    assert scene.worker.calls == ["stop"]
    scene.pass_(50)
    assert scene.worker.calls == ["stop"]


def test_a_task_that_does_not_stop_in_time_is_cancelled(scene: Scene) -> None:
    scene.request_close(timeout=10)
    scene.pass_(9.9)
    assert scene.worker.calls == ["stop"]
    scene.pass_(60)
    assert scene.worker.calls == ["stop", "cancel"]


def test_a_hanging_stop_does_not_prevent_the_cancellation(scene: Scene) -> None:
    scene.beside_runs = False
    scene.request_close(timeout=10)
    scene.pass_(15)
    assert scene.worker.calls == ["cancel"]


def test_a_task_of_a_replaced_generation_is_cancelled_at_once(scene: Scene) -> None:
    Generations(scene.store, "c").claim()
    scene.pass_(30)
    assert scene.worker.calls == ["cancel"]


def test_progress_is_written_every_two_seconds(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # The rate is that of the time since the previous progress.
    monkeypatch.setattr(random, "uniform", lambda *_: 1.0)  # whole seconds: rounding must not delay a turn
    scene.pass_(1)
    assert scene.written() == SourceProgress(state="RUNNING", records=30, transactions=3, rate=30.0)
    scene.worker.records = 50
    scene.pass_(3)
    assert scene.written() == SourceProgress(state="RUNNING", records=50, transactions=3, rate=10.0)


def test_progress_contains_measures_and_source_offsets(scene: Scene) -> None:
    # Progress is written while the task runs and when it has ended.
    position = SourcePosition({"file": "a"}, {"byte": 8})
    scene.worker.known.committed({"a": position})
    scene.pass_(1)
    running = scene.row()
    scene.progress.write_last(SourceTaskOutcome(End.STOPPED, 30, 3), TaskMeasures(), scene.worker.known)
    ended = scene.row()

    assert running.measures.commits == Timing(3)
    assert ended.measures == TaskMeasures()
    for row in (running, ended):
        assert row.source is not None
        assert row.source.offsets == (SourcePartitionOffset(partition={"file": "a"}, offset={"byte": 8}),)
        assert not row.source.has_more_offsets


def test_progress_of_a_later_attempt_is_not_overwritten(scene: Scene) -> None:
    SourceProgressWriter(scene.attempt(2)).write_if_due(scene.worker)
    scene.worker.records = 1
    scene.pass_(5)
    assert scene.written().records == 30


@pytest.mark.parametrize("method", CALLS)
def test_a_method_that_does_not_return_fails_the_task(scene: Scene, method: str) -> None:
    scene.author.does = lambda: scene.pass_(29)
    CALLS[method](scene.task)
    assert (scene.worker.calls, scene.written().failure) == ([], None)

    scene.author.does = lambda: scene.pass_(33)
    CALLS[method](scene.task)
    scene.pass_(100)

    assert scene.worker.calls == ["cancel"]
    assert scene.watch.hang is not None
    told = scene.written()
    assert (told.failure, told.trace) == (scene.watch.hang.message, scene.watch.hang.trace)
    assert re.fullmatch(
        rf"connector c, task 0: {method} has not returned for 3[012]\.\d s", told.failure or ""
    )
    assert "scene.author.does = lambda: scene.pass_(33)" in (told.trace or "")


def test_a_waiting_poll_is_not_a_hang(scene: Scene) -> None:
    scene.author.does = lambda: scene.pass_(10_000)
    scene.task.poll()
    assert (scene.worker.calls, scene.written().failure, scene.row().hangs) == ([], None, None)


def test_the_hang_timeout_starts_at_each_call(scene: Scene) -> None:
    scene.author.does = lambda: scene.pass_(20)
    for _ in range(10):
        CALLS["commit_record"](scene.task)
    assert scene.worker.calls == []


def test_the_stack_of_a_poll_that_ignores_stop_is_reported(scene: Scene) -> None:
    def deaf() -> None:
        scene.request_close(timeout=10)
        scene.pass_(60)

    scene.author.does = deaf
    scene.task.poll()

    assert scene.worker.calls == ["stop", "cancel"]
    assert "in deaf\n    scene.pass_(60)" in (scene.row().hangs or "")
    assert scene.written().failure is None


def test_the_stack_of_a_hanging_stop_is_reported(scene: Scene) -> None:
    inside, release = threading.Event(), threading.Event()

    def hang() -> None:
        inside.set()
        release.wait(20)

    scene.author.does = hang
    stopping = threading.Thread(target=scene.task.stop)
    stopping.start()
    assert inside.wait(20)

    def deaf() -> None:
        scene.request_close(timeout=10)
        scene.pass_(15)

    scene.author.does = deaf
    scene.task.poll()
    release.set()
    stopping.join()

    assert "release.wait(20)" in (scene.row().hangs or "")
    assert "scene.pass_(15)" in (scene.row().hangs or "")


def test_a_hang_timeout_of_zero_allows_all_calls_to_wait(scene: Scene) -> None:
    scene.let_hang(0)
    scene.author.does = lambda: scene.pass_(10_000)
    CALLS["start"](scene.task)
    assert scene.worker.calls == []


def test_write_last_returns_whether_the_store_has_the_outcome() -> None:
    class Failing(MemoryStore):
        is_down = False

        def _write(self, key: str, stored: Any, if_version: str | None) -> bool:
            if self.is_down:
                message = "no answer"
                raise Lost(message)
            return super()._write(key, stored, if_version)

    store = Failing(patience=0.01)
    scene = Scene(store)
    outcome = SourceTaskOutcome(End.STOPPED, 5, 1)
    store.is_down = True
    assert not scene.progress.write_last(outcome, TaskMeasures())
    store.is_down = False
    assert scene.progress.write_last(outcome, TaskMeasures())
    assert scene.written() == SourceProgress(state="STOPPED", records=5, transactions=1)
