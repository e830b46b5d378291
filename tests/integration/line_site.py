"""A connector that appends offsets to files, driven in this process on the shared Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sinksdk import ClosingReason, ConnectException, TopicPartition, committed_offsets
from sinksdk.control.progress import Listener
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.status import PartitionStatus
from sinksdk.runtime.connect_worker import ConnectorRunner
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.supervisor import RunningTasks
from sinksdk.spark.generation_job import SparkLauncher
from sinksdk.store import identify, open_store, table
from sinksdk.store.keys import status_key
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import ConnectorStatus
from sinksdk.topics import Source
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import TaskResult
from tests.integration.line_sink import LineSink, LineSinkConfig

if TYPE_CHECKING:
    from pyspark import SparkContext

PATIENCE = 120.0  # seconds until a test gives up waiting
_ROOT = Path(__file__).parents[2]


class Watcher(Listener):
    def __init__(self) -> None:
        self.plans: list[GenerationPlan] = []
        self.closings: list[ClosingReason] = []
        self._positions: dict[str, int] = {}
        self._lock = threading.Lock()

    def planned(self, plan: GenerationPlan) -> None:
        with self._lock:
            self._positions = {}
            self.plans.append(plan)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        with self._lock:
            self._positions = {v.partition.topic: v.records for v in partitions if v.position is not None}

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self.closings.append(reason)

    def is_reading(self, generation: int, *topics: str) -> bool:
        with self._lock:
            return len(self.plans) == generation and all(self._positions.get(topic) for topic in topics)


class _Ahead(SystemWallClock):
    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class _Launcher:
    def __init__(self, launcher: SparkLauncher, launched: Callable[[GenerationPlan], None]) -> None:
        self._launcher = launcher
        self._launched = launched

    def launch(self, plan: GenerationPlan) -> RunningTasks[TaskResult]:
        running = self._launcher.launch(plan)
        self._launched(plan)
        return running


class LineSite:
    def __init__(
        self, folder: Path, spark: SparkContext, source: Callable[[], Source], settings: dict[str, Any]
    ) -> None:
        self.out = folder / "out"
        self.out.mkdir()
        self._clock = _Ahead()
        self._store = f"sqlite:///{folder}/store.sqlite"
        self._spark = spark
        self._source = source
        self._raw = {
            "name": "lines",
            "connector.class": "tests.integration.line_sink:LineSink",
            "tasks.max": 2,
            "out.folder": str(self.out),
            "batch.size": 100,
            "poll.interval.ms": 100,
            "closing.poll.ms": 100,
            **settings,
        }
        self.driver: ConnectorDriver | None = None
        self.launched: Callable[[GenerationPlan], None] = lambda plan: None
        """Called when a generation's job has started. Its ranges are fixed, but no task has read yet."""

    def start(
        self, watcher: Watcher | None = None, *, until_caught_up: bool = False, **settings: Any
    ) -> ConnectorRunner:
        raw = {**self._raw, **{key.replace("_", "."): value for key, value in settings.items()}}
        config = LineSinkConfig.parse(raw)
        store, source = open_store(self._store, create=True), self._source()
        spec = GenerationSpec(self._store, identify(store), config.name, 0, (str(_ROOT),))
        connector = LineSink()
        self.driver = ConnectorDriver(
            Environment(store, clock=self._clock),
            source=source,
            connector=connector,
            config=config,
            raw=raw,
            launcher=_Launcher(
                SparkLauncher(self._spark, source, connector.columns(config), spec),
                self.launched,
            ),
            listener=watcher or Listener(),
        )
        return ConnectorRunner(self.driver, until_caught_up=until_caught_up)

    def lose_patience(self) -> None:
        """End the grace time of missing topics now."""
        self._clock.ahead = 700.0  # more than the longest missing.topic.grace.ms of these tests

    def committed(self) -> dict[str, int]:
        return {p.topic: offset.offset for p, offset in committed_offsets(self._store, "lines").items()}

    def committed_by_now(self) -> dict[str, int]:
        try:
            return self.committed()
        except ConnectException:
            return {}

    def written(self, topic: str) -> list[int]:
        path = self.out / f"{TopicPartition(topic, 0)}.txt"
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def status(self) -> ConnectorStatus:
        store = open_store(self._store)
        row = table.read(store, status_key("lines"), ConnectorStatus)
        store.close()
        assert row is not None
        return row.value


def await_so(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)
