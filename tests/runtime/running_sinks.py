"""Drivers of sinks whose tasks run immediately, in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sinksdk import (
    ConnectException,
    ConnectorConfig,
    OffsetRange,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
    TopicPartition,
)
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.progress import Listener
from sinksdk.engine import SystemClock, TaskName, WorkerSinkTask
from sinksdk.engine.options import EngineOptions
from sinksdk.engine.task_run import SinkTaskRun
from sinksdk.model.plan import RangePlan
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.store import Store, take_over
from sinksdk.store.records import GenerationPlan
from sinksdk.worker.task_result import TaskResult
from tests.helpers.memory_store import MemoryStore

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
RAW = {"name": "c", "topics": "t", "connector.class": "tests.runtime.running_sinks:Connector"}


class Task(SinkTask):
    behaviour: Callable[[SinkRecords], None] = staticmethod(lambda records: None)

    def put(self, records: SinkRecords) -> None:
        type(self).behaviour(records)


class Undiscardable(Task):
    def open(self, partitions: Any) -> None:
        self.context.prepared(
            {partition: [f"{partition}-{self.context.generation()}"] for partition in partitions}
        )

    def discard(self, partition: TopicPartition, tokens: Any) -> None:
        message = "the outside world says no"
        raise ConnectException(message)


class Source:
    def __init__(self, ends: Mapping[TopicPartition, int], *errors: Exception) -> None:
        self.ends = dict(ends)
        self.errors = list(errors)

    def partitions(self, subscription: Any) -> dict[TopicPartition, OffsetRange]:
        if self.errors:
            raise self.errors.pop(0)
        return {p: OffsetRange(0, end) for p, end in self.ends.items()}

    def topic_ids(self, topics: Any) -> dict[str, str]:
        return {}

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> dict[TopicPartition, int]:
        return {partition: offsets.start for partition, offsets in ranges.items()}

    def reader(self, ranges: Any) -> Any:
        raise AssertionError


class Finished:
    def __init__(self, results: list[TaskResult]) -> None:
        self._results = results

    def wait(self, timeout: float) -> bool:
        return True

    def results(self) -> list[TaskResult]:
        return self._results

    def cancel(self) -> None: ...


class InProcess:
    def __init__(self, store: Store, task_class: type[SinkTask], connector: str = "c") -> None:
        self.store = store
        self.connector = connector
        self.task_class = task_class
        self.plans: list[GenerationPlan] = []

    def launch(self, plan: GenerationPlan) -> Finished:
        self.plans.append(plan)
        return Finished([self._run(plan, number) for number in range(len(plan.tasks))])

    def batches(self, planned: RangePlan) -> list[Sequence[int]]:
        return [range(planned.start, planned.end)]

    def _run(self, plan: GenerationPlan, number: int) -> TaskResult:
        taken = take_over(self.store, self.connector, plan.generation, number)
        assert taken is not None
        ranges = plan.tasks[number].ranges
        worker = WorkerSinkTask(
            self.task_class(),
            TaskName(self.connector, number),
            None,
            commits=taken.ledger,
            clock=SystemClock(),
            generation=plan.generation,
            options=EngineOptions(skip_lost=plan.config.get("on.data.loss") == "skip"),
        )
        batches = [
            SinkRecords.of(r.topic_partition, [SinkRecord(*r.topic_partition, offset=o) for o in offsets])
            for r in ranges
            for offsets in self.batches(r)
            if offsets
        ]
        run = SinkTaskRun(worker, ranges, batches, closing=lambda: None, clock=SystemClock())
        outcomes = list(run.run())
        return TaskResult(number, taken.ledger.attempt, outcomes, measures=worker.measures(0.0))


class Connector(SinkConnector):
    task_class = Task

    def __init__(self) -> None:
        self.heard: list[list[str]] = []
        self.stops: list[bool] = []

    def subscribed(self, topics: Any) -> None:
        self.heard.append(list(topics))

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self.stops.append(is_deleted)


class OtherConnector(Connector): ...


def driver(
    source: Source,
    task_class: type[SinkTask] = Task,
    connector: Connector | None = None,
    group: OffsetGroup | None = None,
    store: Store | None = None,
    *,
    launcher_class: type[InProcess] = InProcess,
    **settings: object,
) -> tuple[ConnectorDriver, InProcess, Connector]:
    store = store or MemoryStore()
    raw = {
        **RAW,
        "tasks.max": 2,
        "poll.interval.ms": 10,
        "restart.backoff.ms": 1,
        **settings,
    }
    connector, launcher = connector or Connector(), launcher_class(store, task_class)
    made = ConnectorDriver(
        Environment(store),
        source=source,
        connector=connector,
        config=ConnectorConfig.parse(raw),
        raw=raw,
        launcher=launcher,
        listener=Listener(),
        group=group,
    )
    return made, launcher, connector
