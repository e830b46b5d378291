"""Attempts at one task: which attempt works, which one waits, and for how long."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pyarrow as pa
import pytest

from sinksdk import (
    ClosingReason,
    FencedException,
    OffsetAndMetadata,
    RetriableException,
    SinkConnector,
    SinkRecords,
    SinkTask,
)
from sinksdk.model.outcome import Retry
from sinksdk.store import Store, identify, open_store, request_closing, table, take_over
from sinksdk.store.keys import plan_key, progress_key
from sinksdk.store.records import Closing, GenerationPlan
from sinksdk.store.reports import TaskProgress
from sinksdk.support import logs
from sinksdk.testing import ManualClock
from sinksdk.worker import attempts, sink_task
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.sink_task import run_attempt
from sinksdk.worker.task_result import TaskResult, from_rows, to_row
from tests.helpers.memory_store import MemoryStore
from tests.store.protocol import P0, plan

CONFIG = {
    "name": "c",
    "connector.class": "examples.folder_sink:FolderSink",
    "topics": "flights",
    "folder": ".",
}
SPEC = GenerationSpec("memory:", "id", "c", 1)


class Clock(ManualClock):
    happens: Callable[[], None] = staticmethod(lambda: None)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        type(self).happens()


def nothing(*_: object) -> AbstractContextManager[tuple[()]]:
    return nullcontext(())


def request_close(store: MemoryStore, timeout: float) -> None:
    request_closing(store, "c", 1, Closing(reason=ClosingReason.REBALANCE, timeout=timeout))


def test_a_copy_does_not_disturb_the_closing_commit_of_the_original() -> None:
    # Regression: a speculative copy fenced the original during its closing flush, and then opened no
    # partition.
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0])
    original = take_over(store, "c", 1, 0)
    assert original is not None
    request_close(store, 30.0)

    result = run_attempt(replace(SPEC, speculates=True), store, 0, nothing, clock=clock)
    original.ledger.commit({P0: OffsetAndMetadata(60)})

    assert result.outcomes == []
    assert clock.now() == pytest.approx(1_030, abs=1)


def test_without_speculation_an_attempt_does_not_wait_for_a_dead_one() -> None:
    # Regression: after an attempt was killed, closing took the whole graceful timeout. Without speculation,
    # Spark starts a second attempt only after it has given the first one up. If the first attempt still
    # lives, it may commit until the next generation starts.
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0])
    original = take_over(store, "c", 1, 0)
    assert original is not None
    request_close(store, 30.0)

    result = run_attempt(SPEC, store, 0, nothing, clock=clock)
    original.ledger.commit({P0: OffsetAndMetadata(60)})

    assert result.outcomes == []
    assert clock.now() == 1_000


def test_a_new_attempt_opens_nothing_after_a_close_request() -> None:
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)
    request_close(store, 30.0)

    result = run_attempt(SPEC, store, 0, nothing, clock=clock)

    assert result.outcomes == []
    assert clock.now() == 1_000


def test_a_fenced_attempt_stops_waiting_for_a_silent_owner() -> None:
    # Regression: the owner's executor was lost, and Spark starts no third attempt while this one waits.
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)

    with pytest.raises(FencedException, match="has written nothing for 600 s"):
        fenced(store, clock)
    assert clock.now() == pytest.approx(1_600, abs=3)


def test_a_fenced_attempt_waits_while_its_owner_makes_progress() -> None:
    store, clock = MemoryStore(), Clock()
    plan(store, 1, [P0], config=CONFIG)
    owners = []

    def live() -> None:
        if clock.now() < 3_000 and int(clock.now()) % 100 == 0:
            owners.append(take_over(store, "c", 1, 0))
        if clock.now() >= 3_000:
            request_close(store, 5.0)

    Clock.happens = live
    try:
        with pytest.raises(FencedException, match="is closing"):
            fenced(store, clock)
    finally:
        Clock.happens = lambda: None
    assert len(owners) > 10


def fenced(store: MemoryStore, clock: Clock) -> None:
    # Another attempt takes the record over as soon as this one has started.
    def taken_from(*_: object) -> NoReturn:
        take_over(store, "c", 1, 0)
        message = "somebody newer"
        raise FencedException(message)

    run_attempt(SPEC, store, 0, iter(()), clock=clock, watch=taken_from)


class HostClock(ManualClock):
    # The monotonic clock starts with the host.
    ahead = 0.0

    def time(self) -> float:
        return self.now() + self.ahead


class BusySink(SinkConnector):
    class Task(SinkTask):
        """Raises RetriableException in every put."""

        def put(self, records: SinkRecords) -> None:
            message = "busy"
            raise RetriableException(message)

    task_class = Task


def attempt_in_vain(store: MemoryStore, generation: int, clock: HostClock, epoch: float) -> Retry:
    records = SinkRecords(P0, pa.RecordBatch.from_pydict({"offset": [0], "value": [b"x"]}))
    clock.ahead = epoch - clock.now()
    spec = replace(SPEC, generation=generation)
    result = run_attempt(spec, store, 0, lambda *_: nullcontext([records]), clock=clock)
    (back,) = from_rows(TaskResult, [to_row(result)])
    row = table.read(store, progress_key("c", 0), TaskProgress)
    failure = back.outcomes[0].failure
    assert row is not None
    assert failure is not None
    assert failure.retry is not None
    assert [p.failure and p.failure.retry for p in row.value.partitions] == [failure.retry]
    return failure.retry


def test_retries_for_a_later_generation_are_reported_in_wall_clock_time(store: MemoryStore) -> None:
    # The next executor may be on another host: the start of the retries is kept, so that the time-out still
    # ends them.
    config = {"name": "c", "topics": "flights", "connector.class": f"{__name__}:BusySink"}
    plan(store, 1, [P0], config=config)

    first = attempt_in_vain(store, 1, HostClock(1_000.0), 1_800_000_000.0)
    assert (first.since, first.attempts, first.refused) == (1_800_000_000.0, 5, 0)
    assert first.next_attempt - first.since == pytest.approx(9.5, abs=0.01)

    planned = plan(store, 2, [P0], config=config)
    row = table.read(store, plan_key("c", 2), GenerationPlan)
    assert row is not None
    (range_,) = planned.tasks[0].ranges
    tasks = (planned.tasks[0].model_copy(update={"ranges": (range_.model_copy(update={"retry": first}),)}),)
    table.write(store, plan_key("c", 2), planned.model_copy(update={"tasks": tasks}), row.version)
    second = attempt_in_vain(store, 2, HostClock(7.0), 1_800_000_010.0)
    assert (second.since - first.since, second.attempts) == (pytest.approx(0.0, abs=0.01), 6)
    assert second.next_attempt - second.since == pytest.approx(19.6, abs=0.01)


def test_log_lines_while_a_store_is_opened_name_the_connector(monkeypatch: pytest.MonkeyPatch) -> None:
    # Workers of one Spark serve many connectors, but the unavailable store concerns only one of them.
    about: list[object] = []

    def opened(url: str, *, expected_id: str) -> MemoryStore:
        about.append((url, expected_id, logs._about.get()))
        return MemoryStore()

    monkeypatch.setattr(attempts, "open_store", opened)
    with attempts.prepared_process(GenerationSpec("memory:", "id", "archive", 7), 3):
        pass

    assert about == [("memory:", "id", {"connector": "archive", "task": 3, "generation": 7})]


def test_a_tasks_store_is_freed_before_the_process_freezes_its_objects(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # Regression: each Python worker kept the connections of its first task's store until it ended.
    url = f"sqlite:///{tmp_path}/store.sqlite"
    spec = GenerationSpec(url, identify(open_store(url, create=True)), "archive", 7)
    stores: list[weakref.ref[Store]] = []
    are_alive: list[bool] = []

    def attempt(_: GenerationSpec, store: Store, task: int, read: object) -> TaskResult:
        stores.append(weakref.ref(store))
        return TaskResult(task, 0, [])

    def freeze() -> None:
        gc.collect()
        are_alive.extend(store() is not None for store in stores)

    monkeypatch.setattr(sink_task, "run_attempt", attempt)
    monkeypatch.setattr(sink_task, "reading", lambda *_: None)
    monkeypatch.setattr(sink_task, "_freeze_garbage", freeze)
    sink_task.run_task(spec, 0)

    assert are_alive == [False]
