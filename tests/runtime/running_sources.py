"""A counting source, its tasks in threads of this process, and its driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from pydantic import Field

from sinksdk import ClosingReason, ConnectException
from sinksdk.engine import TaskName
from sinksdk.engine.writer import CommittedOffsets, Target, TransactionalWriter
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceRecord, SourceTask
from sinksdk.store import Store
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress
from sinksdk.topics.memory import MemoryTopics
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from sinksdk.worker.task_result import SourceTaskResult
from tests.helpers.memory_target import MemoryTarget


class CountingConfig(SourceConnectorConfig):
    first: int = Field(default=0, description="Which of a task's numbers is its first.")
    share: str = Field(default="all", description="Which numbers a task counts.")
    fails: bool = Field(default=False, description="Whether its poll raises.")
    topic: str = Field(default="numbers", description="Where they go.")
    hangs: str = Field(default="", description="In which method a task hangs, the first time.")


class CountingTask(SourceTask):
    started: list[str] = []  # noqa: RUF012 - of all instances
    stops: list[str] = []  # noqa: RUF012 - the same
    hung: list[str] = []  # noqa: RUF012 - the same
    let_go = threading.Event()

    def __init__(self) -> None:
        # A late task of an earlier test must not change the lists of this test.
        made = type(self)
        self.started, self.stops, self.hung, self.let_go = made.started, made.stops, made.hung, made.let_go

    def start(self, config: CountingConfig) -> None:
        self.config, self.stopping = config, threading.Event()
        self.hang_in("start")
        self.partition = {"share": config.share}
        offset = self.context.offset_storage_reader().offset(self.partition)
        self.next = int(offset["next"]) if offset else config.first  # type: ignore[arg-type]  # a number
        self.started.append(config.share)

    def poll(self) -> Sequence[SourceRecord]:
        self.stopping.wait(0.005)
        self.hang_in("poll")
        if self.config.fails:
            message = "the source is gone"
            raise ConnectException(message)
        self.next += 1
        value = b"%s %d" % (self.config.share.encode(), self.next - 1)
        return [SourceRecord(self.partition, {"next": self.next}, self.config.topic, value)]

    def commit(self) -> None:
        self.hang_in("commit")

    def stop(self) -> None:
        self.stopping.set()

    def stopped(self) -> None:
        self.stops.append(self.config.share)

    def hang_in(self, method: str) -> None:
        if self.config.hangs == method and not self.hung:
            self.hung.append(self.config.share)
            self.let_go.wait(20)


class Counting(SourceConnector):
    config_class, task_class = CountingConfig, CountingTask

    def __init__(self) -> None:
        self.shares: Sequence[Mapping[str, str]] = [{"share": "a"}, {"share": "b"}]
        self.life: list[str] = []

    def start(self, config: Any) -> None:
        self.life.append("start")

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        return self.shares

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self.life.append(f"stop({is_deleted})")


class Fencing:
    def __init__(self, target: Target) -> None:
        self._target = target
        self.refusals: list[Exception] = []
        self.fenced: list[int] = []

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        if threading.current_thread().name.startswith("task"):
            return self._target.writer(config, name)
        if self.refusals:
            raise self.refusals.pop(0)
        self.fenced.append(name.task)
        return self._target.writer(config, name)

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        return self._target.offsets(config)


class ThreadsOfTasks:
    def __init__(self, spec: GenerationSpec, store: Store, tasks: int) -> None:
        self._results: list[SourceTaskResult] = []
        self._is_cancelled = False
        self._threads = [
            threading.Thread(target=self._run, args=(spec, store, task), name=f"task-{task}", daemon=True)
            for task in range(tasks)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, spec: GenerationSpec, store: Store, task: int) -> None:
        self._results.append(run_source_attempt(spec, store, task))

    def wait(self, timeout: float) -> bool:
        until = time.monotonic() + timeout
        for thread in self._threads:
            if not self._is_cancelled:
                thread.join(max(until - time.monotonic(), 0))
        return self._is_cancelled or not any(thread.is_alive() for thread in self._threads)

    def results(self) -> Sequence[SourceTaskResult]:
        if self._is_cancelled:
            message = "the job was cancelled"
            raise ConnectException(message)
        return self._results

    def cancel(self) -> None:
        # As with Spark, cancelled threads continue and their results are lost.
        self._is_cancelled = True


class InThreads:
    def __init__(self, store: Store, target: Target) -> None:
        self.store = store
        self.target = target
        self.plans: list[GenerationPlan] = []

    def launch(self, plan: GenerationPlan) -> ThreadsOfTasks:
        self.plans.append(plan)
        spec = GenerationSpec("memory:", "id", "c", plan.generation, target=self.target)
        return ThreadsOfTasks(spec, self.store, len(plan.tasks))


class Watching:
    def __init__(self) -> None:
        self.reasons: list[ClosingReason] = []
        self.ends: list[list[tuple[int, str]]] = []
        self.latest: Mapping[int, SourceProgress] = {}

    def planned(self, plan: GenerationPlan) -> None: ...

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        self.latest = tasks

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self.reasons.append(reason)

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        self.ends.append([(task, row.state) for task, row in tasks.items()])


class Running:
    def __init__(
        self,
        store: Store,
        topics: MemoryTopics | Target,
        *,
        connector: Counting | None = None,
        **settings: object,
    ) -> None:
        CountingTask.started, CountingTask.stops, CountingTask.hung = [], [], []
        CountingTask.let_go.clear()
        self.store = store
        self.topics = topics
        target = MemoryTarget(topics) if isinstance(topics, MemoryTopics) else topics
        self.target = Fencing(target)
        self.launcher = InThreads(store, self.target)
        self.connector = connector or Counting()
        self.listener = Watching()
        self.raw = {
            "name": "c",
            "connector.class": f"{__name__}:Counting",
            "tasks.max": 5,
            "restart.backoff.ms": 1,
            "closing.poll.ms": 10,
            **settings,
        }
        self.error: BaseException | None = None
        self.reason: ClosingReason | None = None
        self.driver = SourceDriver(
            Environment(store),
            connector=self.connector,
            config=CountingConfig.parse(self.raw),
            raw=self.raw,
            target=self.target,
            launcher=self.launcher,
            listener=self.listener,
        )
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            self.reason = self.driver.run()
        except BaseException as error:  # noqa: BLE001 - the test checks it
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.driver.close()
        self.join()

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive()

    def values(self) -> list[bytes]:
        assert isinstance(self.topics, MemoryTopics)
        return [record.value or b"" for record in self.topics.records("numbers")]


def eventually(condition: Callable[[], object], seconds: float = 15.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.005)


def counted(values: Sequence[bytes], share: str) -> list[int]:
    return [int(value.split()[1]) for value in values if value.split()[0] == share.encode()]
