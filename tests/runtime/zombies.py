"""Tasks that freeze in the middle of a transaction, and count as dead."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, Self

from sinksdk.engine import TaskName
from sinksdk.engine.writer import CommittedOffsets, Target, TransactionalWriter
from sinksdk.source import SourceConnectorConfig
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata, SourcePartition
from sinksdk.store.generations import Generations
from sinksdk.store.records import TaskPlan
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from sinksdk.worker.task_result import SourceTaskResult
from tests.helpers.memory_store import MemoryStore
from tests.runtime.running_sources import CountingConfig


class Freezing:
    def __init__(self, writer: TransactionalWriter, frozen: threading.Event, thaw: threading.Event) -> None:
        self._writer = writer
        self._frozen, self._thaw = frozen, thaw
        self._commits = 0
        self.init, self.begin, self.send = writer.init, writer.begin, writer.send
        self.abort, self.close = writer.abort, writer.close

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        self._commits += 1
        if self._commits == 3:
            self._frozen.set()
            assert self._thaw.wait(20)
        return self._writer.commit(positions, forget)


class FreezingTarget:
    def __init__(self, target: Target, tasks: int) -> None:
        self._target = target
        self._tasks = tasks
        self.frozen = [threading.Event() for _ in range(tasks)]
        self.thaw = threading.Event()

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        writer = self._target.writer(config, name)
        return Freezing(writer, self.frozen[name.task], self.thaw)

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        return self._target.offsets(config)


class Zombies:
    def __init__(
        self, store: MemoryStore, target: Target, tasks: int, settings: Mapping[str, str] = {}
    ) -> None:
        self.target = FreezingTarget(target, tasks)
        self.ended: list[SourceTaskResult | Exception] = []
        raw = {
            "name": "c",
            "connector.class": "tests.runtime.running_sources:Counting",
            "closing.poll.ms": "100000",  # a frozen task does not poll
            **settings,
        }
        generations = Generations(store, "c")
        plan = generations.plan(
            generations.claim(),
            [TaskPlan(ranges=(), config={"share": f"old-{task}"}) for task in range(tasks)],
            1,
            raw,
            transactional_tasks=tasks,
        )
        self._store = store
        self._spec = GenerationSpec("memory:", "id", "c", plan.generation, target=self.target)
        self._threads = [
            threading.Thread(target=self._run, args=(task,), daemon=True) for task in range(tasks)
        ]

    def _run(self, task: int) -> None:
        try:
            self.ended.append(run_source_attempt(self._spec, self._store, task))
        except Exception as error:  # noqa: BLE001 - the test checks it
            self.ended.append(error)

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        for event in self.target.frozen:
            assert event.wait(60), self.ended
        return self

    def thaw(self) -> None:
        self.target.thaw.set()
        for thread in self._threads:
            thread.join(30)
        assert len(self.ended) == len(self._threads)

    def __exit__(self, *_: object) -> None:
        self.target.thaw.set()


def committed(target: Target, share: str, settings: Mapping[str, Any] = {}) -> int | None:
    offsets = target.offsets(CountingConfig.parse({"name": "c", **settings}))
    try:
        found = offsets.offset({"share": share})
    finally:
        offsets.close()
    return int(found["next"]) if found else None  # type: ignore[arg-type]  # a number
