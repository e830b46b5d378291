"""A hanging source task is reported with its lines of code; the driver and other tasks do not wait for it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from sinksdk import ClosingReason
from sinksdk.control.herder import Herder
from sinksdk.control.status import read_status
from sinksdk.model.outcome import End
from sinksdk.topics.memory import MemoryTopics
from tests.helpers.memory_store import MemoryStore
from tests.helpers.tiers import extended_after
from tests.runtime.running_sources import CountingTask, Running, counted, eventually

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_once")]


@pytest.fixture(autouse=True)
def let_go() -> Iterator[None]:
    yield
    CountingTask.let_go.set()


def running(store: MemoryStore, topics: MemoryTopics, hangs: str, **settings: object) -> Running:
    more = {"task.hang.timeout.ms": 1_000, "task.shutdown.graceful.timeout.ms": 1_500, **settings}
    return Running(store, topics, hangs=hangs, **more)


def expect_each_once(running: Running) -> None:
    for share in "ab":
        assert (found := counted(running.values(), share)) == list(range(len(found)))


@pytest.mark.parametrize("method", extended_after(1, ["start", "commit"]))
def test_a_method_that_hangs_fails_its_task(method: str) -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with running(store, topics, method, **{"task.shutdown.graceful.timeout.ms": 5_000}) as it:
        eventually(lambda: it.listener.ends, seconds=30)
        (hung,) = CountingTask.hung
        before = len(counted(it.values(), hung))
        eventually(lambda: len(counted(it.values(), hung)) > before + 5)
        status = read_status(store, "c")

    number = "ab".index(hung)
    assert it.error is None
    assert it.listener.reasons[0] is ClosingReason.FAILURE
    assert it.listener.ends[0] == [(task, End.FAILED if task == number else End.STOPPED) for task in range(2)]
    (failed,) = status.tasks
    assert f"task {number}: {method} has not returned for " in (failed.error or "")
    assert "self.let_go.wait(20)" in (failed.trace or "")
    CountingTask.let_go.set()
    expect_each_once(it)


def test_a_method_that_always_hangs_fails_the_connector() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with running(store, topics, "start", **{"restart.max.attempts": 0}) as it:
        it.join()

    assert "start has not returned for " in str(it.error)
    assert "self.let_go.wait(20)" in "".join(getattr(it.error, "__notes__", []))


def test_a_poll_that_waits_is_not_a_hang() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with running(store, topics, "poll", **{"task.shutdown.graceful.timeout.ms": 20_000}) as it:
        eventually(lambda: CountingTask.hung)
        sibling = "ab".replace(CountingTask.hung[0], "")
        before = len(counted(it.values(), sibling))
        time.sleep(3)
        eventually(lambda: len(counted(it.values(), sibling)) > before + 20)
        assert it.listener.ends == []
        CountingTask.let_go.set()

    assert it.listener.ends == [[(0, End.STOPPED), (1, End.STOPPED)]]
    expect_each_once(it)


def test_a_poll_that_ignores_stop_does_not_prevent_a_reconfiguration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Records that the task polls after the driver has abandoned it are dropped.
    store, topics = MemoryStore(), MemoryTopics()
    with running(store, topics, "poll") as it:
        eventually(lambda: CountingTask.hung)
        eventually(it.values)
        it.driver.rebalance()
        eventually(lambda: len(it.launcher.plans) == 2)
        (hung,) = CountingTask.hung
        eventually(lambda: counted(it.values(), hung))
        CountingTask.let_go.set()

    ends = dict(it.listener.ends[0])
    number = "ab".index(hung)
    assert ends == {number: End.CANCELLED, 1 - number: End.STOPPED}
    told = [line.getMessage() for line in caplog.records if line.name.startswith("sinksdk.runtime")]
    (where,) = [text for text in told if "it did not stop in time" in text]
    assert where.startswith(f"connector c, task {number}: ")
    assert "self.let_go.wait(20)" in where
    assert [text.split(" did not ")[0] for text in told if "task.shutdown" in text] == [
        f"connector c: task {number}"
    ]
    expect_each_once(it)


def test_a_poll_that_ignores_stop_does_not_prevent_a_deletion() -> None:
    store, topics = MemoryStore(), MemoryTopics()
    with running(store, topics, "poll") as it:
        eventually(lambda: CountingTask.hung)
        Herder(store).delete("c")
        it.join()

    assert (it.error, it.reason) == (None, ClosingReason.DELETE)
    assert it.connector.life == ["start", "stop(True)"]
