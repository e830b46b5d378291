"""Source tasks for the engine's tests, which follow a script and record their calls."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sinksdk.engine import TaskName
from sinksdk.engine.clock import Threads
from sinksdk.engine.options import SourceOptions
from sinksdk.engine.worker_source_task import WorkerSourceTask
from sinksdk.model.outcome import SourceTaskState
from sinksdk.source import RecordMetadata, SourceRecord, SourceTask, SourceTaskContext
from sinksdk.testing import ManualClock
from sinksdk.topics.memory import MemoryOffsets, MemoryTopics, MemoryWriter

NAME = TaskName("files", 0)
ID = "g-files-0"

Step = list[SourceRecord] | BaseException | Callable[[], Any] | None


def lines(*numbers: int, file: str = "a", topic: str = "lines") -> list[SourceRecord]:
    """Return records of the lines of a file; the offset of each is the number of the next line."""
    return [
        SourceRecord({"file": file}, {"line": n + 1}, topic, b"%s%d" % (file.encode(), n)) for n in numbers
    ]


class Script(SourceTask):
    """Returns the next result of the script in each poll; after the last one, the task stops itself."""

    def __init__(self, *steps: Step) -> None:
        self.steps = deque(steps)
        self.calls: list[str] = []
        self.acknowledged: list[tuple[bytes | None, RecordMetadata | None]] = []
        self.states: list[tuple[str, SourceTaskState]] = []
        self.faults: dict[str, deque[BaseException]] = defaultdict(deque)
        self.worker: WorkerSourceTask | None = None

    def note(self, name: str) -> None:
        """Record a call, and raise the error that the script has for it."""
        self.calls.append(name)
        if self.worker is not None:
            self.states.append((name, self.worker.state))
        if self.faults[name]:
            raise self.faults[name].popleft()

    def initialize(self, context: SourceTaskContext) -> None:
        super().initialize(context)
        self.note("initialize")

    def start(self, config: Any) -> None:
        self.config = config
        self.note("start")

    def poll(self) -> Sequence[SourceRecord] | None:
        self.note("poll")
        if not self.steps:
            assert self.worker is not None
            self.worker.stop()
            return None
        step = self.steps.popleft()
        if isinstance(step, BaseException):
            raise step
        found = step() if callable(step) else step
        return found if isinstance(found, list) else None

    def commit(self) -> None:
        self.note("commit")

    def commit_record(self, record: SourceRecord, metadata: RecordMetadata | None) -> None:
        self.acknowledged.append((record.value, metadata))
        self.note("commit_record")

    def stop(self) -> None:
        self.note("stop")

    def stopped(self) -> None:
        self.note("stopped")


class Scene(NamedTuple):
    worker: WorkerSourceTask
    task: Script
    topics: MemoryTopics
    writer: MemoryWriter
    clock: ManualClock

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.topics.records("lines")]

    def offset(self, file: str = "a") -> Any:
        """Return the offset of a file that the next task reads from the store."""
        return MemoryOffsets(self.topics, NAME.connector).offset({"file": file})


def scene(
    task: Script,
    *,
    topics: MemoryTopics | None = None,
    writer: MemoryWriter | None = None,
    options: SourceOptions | None = None,
    may_run: Callable[[], bool] = lambda: True,
    threads: Threads | None = None,
) -> Scene:
    """Return a worker for a task, in memory."""
    topics = topics or MemoryTopics()
    writer = writer or MemoryWriter(topics, ID, NAME.connector)
    clock = ManualClock()
    task.worker = WorkerSourceTask(
        task,
        NAME,
        {"some": "config"},
        writer=writer,
        offsets=MemoryOffsets(topics, NAME.connector),
        clock=clock,
        threads=threads,
        raw_config={"name": "files"},
        options=options,
        may_run=may_run,
    )
    return Scene(task.worker, task, topics, writer, clock)
