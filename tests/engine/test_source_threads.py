"""KIP-419 with real threads: after ``stopped`` no thread of the task runs, and nothing stays open."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sinksdk.engine.clock import Clock, SystemClock
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.model.outcome import End, SourceTaskOutcome, SourceTaskState
from sinksdk.source import RecordMetadata, SourceRecord, SourceTask
from sinksdk.support.threads import SystemThreads
from sinksdk.testing.faults import ManualClock
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter
from tests.engine.sources import ID, NAME, lines

PATIENCE = 20.0  # seconds; a machine may be busy
OFTEN = SourceOptions("interval", interval=0.01)


def held() -> set[object]:
    """Return the open files and connections of this process, by number, and its threads."""
    found: set[object] = set(threading.enumerate())
    for number in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the descriptor with which the folder itself is listed
            found.add((number.name, str(number.readlink())))
    return found


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Fail if a test leaves an open file, connection or thread; those of earlier tests may end."""
    before = held()
    yield
    deadline = time.monotonic() + PATIENCE
    while held() - before and time.monotonic() < deadline:
        time.sleep(0.01)  # a thread whose function has returned takes a moment to exit
    assert held() - before == set()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def wait(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.001)


class Connected(SourceTask):
    """Holds a connection, a file and a thread; its poll waits until stop."""

    def __init__(self, server: socket.socket, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.log: list[tuple[str, threading.Thread]] = []
        self.opened: list[Any] = []
        self.signal = threading.Event()
        self.batches: list[list[SourceRecord]] = []
        self.running = 0

    def note(self, name: str) -> None:
        self.log.append((name, threading.current_thread()))

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.log]

    def start(self, config: object) -> None:
        self.note("start")
        self.opened.append(socket.create_connection(self.server.getsockname()))
        self.opened.append((self.folder / "position").open("w"))
        self.thread = threading.Thread(target=self.signal.wait, name="the task's own")
        self.thread.start()

    def poll(self) -> Sequence[SourceRecord] | None:
        self.note("poll")
        if self.batches:
            return self.batches.pop(0)
        self.signal.wait()
        return None

    def stop(self) -> None:
        self.note("stop")
        self.signal.set()

    def stopped(self) -> None:
        self.note("stopped")
        self.signal.set()
        if hasattr(self, "thread"):
            self.thread.join()
        for thing in self.opened:
            thing.close()


class HoldingWriter(MemoryWriter):
    """Holds a file from its first transaction on, as a producer holds connections."""

    def __init__(self, topics: MemoryTopics, folder: Path) -> None:
        super().__init__(topics, ID, NAME.connector)
        self.folder = folder
        self.file: Any = None

    def init(self) -> None:
        super().init()
        self.file = (self.folder / "producer").open("w")

    def close(self) -> None:
        super().close()
        if self.file is not None:
            self.file.close()


class Running:
    """A worker in a thread of its own."""

    def __init__(
        self,
        task: SourceTask,
        folder: Path,
        options: SourceOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.topics = MemoryTopics()
        self.writer = HoldingWriter(self.topics, folder)
        self.worker = WorkerSourceTask(
            task,
            NAME,
            None,
            writer=self.writer,
            offsets=MemoryOffsets(self.topics, NAME.connector),
            clock=clock or SystemClock(),
            threads=SystemThreads(str(NAME)),
            options=options,
        )
        self._pool = ThreadPoolExecutor(1, "task")
        self._outcome: Future[SourceTaskOutcome] = self._pool.submit(self.worker.run)
        self._pool.shutdown(wait=False)

    def outcome(self) -> SourceTaskOutcome:
        return self._outcome.result(PATIENCE)

    @property
    def is_over(self) -> bool:
        return self._outcome.done()


def test_stop_interrupts_a_waiting_poll(server: socket.socket, tmp_path: Path) -> None:
    task = Connected(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "poll" in task.names)

    it.worker.stop()

    assert it.outcome().end is End.STOPPED
    assert task.names == ["start", "poll", "stop", "stopped"]
    threads = dict(task.log)
    assert threads["stop"] is threading.current_thread()
    assert threads["stopped"] is threads["poll"] is threads["start"]
    assert it.worker.state is SourceTaskState.STOPPED


def test_stop_and_stopped_are_called_once_from_any_thread(server: socket.socket, tmp_path: Path) -> None:
    class Raising(Connected):
        def stop(self) -> None:
            super().stop()
            raise OSError("already closed")

    task = Raising(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "poll" in task.names)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(it.worker.stop)
    assert it.outcome().end is End.STOPPED
    assert (task.names.count("stop"), task.names.count("stopped"), task.names[-1]) == (1, 1, "stopped")


def test_stopped_waits_for_a_commit_but_stop_does_not(
    server: socket.socket, tmp_path: Path, clock: ManualClock
) -> None:
    release = threading.Event()

    class Committing(Connected):
        def commit(self) -> None:
            self.note("commit")
            release.wait()
            self.note("committed")

    task = Committing(server, tmp_path)
    task.batches.append(lines(0))
    it = Running(task, tmp_path, OFTEN, clock)
    wait(lambda: task.names.count("poll") == 2)
    clock.advance(1.0)  # the transaction is due, while the task polls
    wait(lambda: "commit" in task.names)

    it.worker.stop()
    assert task.names == ["start", "poll", "poll", "commit", "stop"]
    time.sleep(0.05)
    assert not it.is_over
    release.set()

    assert it.outcome().end is End.STOPPED
    assert task.names[-2:] == ["committed", "stopped"]
    threads = dict(task.log)
    assert threads["commit"] not in (threads["poll"], threads["stop"])


def test_stopped_waits_for_a_running_stop(server: socket.socket, tmp_path: Path) -> None:
    release = threading.Event()

    class Slow(Connected):
        def stop(self) -> None:
            super().stop()
            release.wait()
            self.note("stop returns")

    task = Slow(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "poll" in task.names)
    asking = threading.Thread(target=it.worker.stop)
    asking.start()
    wait(lambda: "stop" in task.names)
    time.sleep(0.05)
    assert "stopped" not in task.names
    release.set()
    asking.join()

    it.outcome()
    assert task.names[-2:] == ["stop returns", "stopped"]


def test_a_failed_start_leaves_no_resources_open(server: socket.socket, tmp_path: Path) -> None:
    class Halfway(Connected):
        def start(self, config: object) -> None:
            self.opened.append(socket.create_connection(self.server.getsockname()))
            raise OSError("no such table")

    task = Halfway(server, tmp_path)
    it = Running(task, tmp_path)
    assert it.outcome().end is End.FAILED
    assert task.names == ["stop", "stopped"]
    assert task.opened[0].fileno() == -1


def test_a_task_cancelled_while_its_writer_fences_gets_no_call(server: socket.socket, tmp_path: Path) -> None:
    fencing, release = threading.Event(), threading.Event()
    task = Connected(server, tmp_path)

    class Slow(Running):
        def __init__(self) -> None:
            original = HoldingWriter.init

            def init(writer: HoldingWriter) -> None:
                original(writer)
                fencing.set()
                release.wait()

            HoldingWriter.init = init  # type: ignore[method-assign]  # while one is made
            try:
                super().__init__(task, tmp_path)
                fencing.wait()
            finally:
                HoldingWriter.init = original  # type: ignore[method-assign]  # as it was

    it = Slow()
    it.worker.stop()
    release.set()
    assert it.outcome().end is End.ABANDONED
    assert (task.log, it.writer.is_closed) == ([], True)


def test_a_failed_poll_waits_for_the_commit_of_another_thread(
    server: socket.socket, tmp_path: Path, clock: ManualClock
) -> None:
    inside = threading.Event()

    class Failing(Connected):
        def poll(self) -> Sequence[SourceRecord] | None:
            if self.batches:
                return super().poll()
            clock.advance(1.0)  # the transaction is due, while the task polls
            inside.wait()
            raise ConnectionResetError("the other side hung up")

        def commit(self) -> None:
            self.note("commit")
            inside.set()
            time.sleep(0.05)
            self.note("committed")

    task = Failing(server, tmp_path)
    task.batches.append(lines(0))
    it = Running(task, tmp_path, OFTEN, clock)
    outcome = it.outcome()
    assert outcome.end is End.FAILED
    assert outcome.failure is not None
    assert "ConnectionResetError: the other side hung up" in outcome.failure.message
    assert task.names == ["start", "poll", "commit", "committed", "stop", "stopped"]
    assert [record.value for record in it.topics.records("lines")] == [b"a0"]


def test_stopped_is_called_when_a_poll_that_ignored_stop_returns(
    server: socket.socket, tmp_path: Path
) -> None:
    release = threading.Event()

    class Deaf(Connected):
        def poll(self) -> Sequence[SourceRecord] | None:
            self.note("poll")
            if self.batches:
                return self.batches.pop(0)
            release.wait()
            return lines(1)

    task = Deaf(server, tmp_path)
    task.batches.append(lines(0))
    it = Running(task, tmp_path)
    wait(lambda: task.names.count("poll") == 2)
    it.worker.stop()
    it.worker.cancel()
    wait(lambda: it.writer.file.closed)
    assert "stopped" not in task.names
    assert not it.is_over

    release.set()
    assert it.outcome().end is End.CANCELLED
    assert task.names == ["start", "poll", "poll", "stop", "stopped"]
    assert [record.value for record in it.topics.records("lines")] == [b"a0"]


def test_a_start_that_hangs_is_stopped_when_it_returns(server: socket.socket, tmp_path: Path) -> None:
    release = threading.Event()

    class Hanging(Connected):
        def start(self, config: object) -> None:
            super().start(config)
            release.wait()

    task = Hanging(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "start" in task.names)
    it.worker.stop()
    it.worker.cancel()
    assert task.names == ["start"]
    release.set()
    assert it.outcome().end is End.CANCELLED
    assert task.names == ["start", "stop", "stopped"]


def test_an_exception_of_stopped_leaves_no_resources_of_the_engine_open(
    server: socket.socket, tmp_path: Path
) -> None:
    class Raising(Connected):
        def stopped(self) -> None:
            super().stopped()
            raise OSError("close it twice?")

    task = Raising(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "poll" in task.names)
    it.worker.stop()
    assert it.outcome().end is End.STOPPED


def test_the_state_is_stopped_only_after_all_resources_are_released(
    server: socket.socket, tmp_path: Path
) -> None:
    release = threading.Event()

    class Slow(Connected):
        def stopped(self) -> None:
            self.note("releasing")
            release.wait()
            super().stopped()

    task = Slow(server, tmp_path)
    it = Running(task, tmp_path)
    wait(lambda: "poll" in task.names)
    it.worker.stop()
    wait(lambda: "releasing" in task.names)
    assert it.worker.state is SourceTaskState.STOPPING
    release.set()
    it.outcome()
    assert it.worker.state is SourceTaskState.STOPPED


def test_commit_callbacks_never_run_concurrently(server: socket.socket, tmp_path: Path) -> None:
    class Counting(Connected):
        most = 0

        def poll(self) -> Sequence[SourceRecord] | None:
            self.number = getattr(self, "number", -1) + 1
            if self.signal.is_set():
                return None
            time.sleep(0.001)
            return lines(self.number)

        def busy(self) -> None:
            self.running += 1
            self.most = max(self.most, self.running)
            time.sleep(0.0005)
            self.running -= 1

        def commit(self) -> None:
            self.busy()

        def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
            self.busy()

    task = Counting(server, tmp_path)
    it = Running(task, tmp_path, SourceOptions("interval", interval=0.004))
    wait(lambda: it.worker.transactions > 20)
    it.worker.stop()
    outcome = it.outcome()
    assert task.most == 1
    offsets = [record.source_offset["line"] for record in it.topics.records("lines")]
    assert offsets == list(range(1, outcome.records + 1))
