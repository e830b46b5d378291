"""The archiver driven in this process, on the shared Spark."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sinksdk import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.model.status import PartitionStatus
from sinksdk.plugins.classes import connector_class
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.supervisor import RunningTasks
from sinksdk.spark.generation_job import SparkGeneration, SparkLauncher
from sinksdk.store import identify, open_store
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import TopicDirectorySource
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import TaskResult
from tests.integration.archive_site import Site

if TYPE_CHECKING:
    from pyspark import SparkContext


class Watcher(Listener):
    def __init__(self) -> None:
        self.plans: list[GenerationPlan] = []
        self.ends: list[Sequence[PartitionStatus]] = []
        self.closings: list[ClosingReason] = []

    def planned(self, plan: GenerationPlan) -> None:
        self.plans.append(plan)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self.closings.append(reason)

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        self.ends.append(partitions)

    def starts(self, generation: int) -> dict[int, int]:
        return {r.partition: r.start for task in self.plans[generation - 1].tasks for r in task.ranges}

    def next_starts(self, generation: int) -> dict[int, int]:
        # A partition that had failed may start in a later generation.
        later = (self.starts(each) for each in range(len(self.plans), generation, -1))
        return {partition: start for starts in later for partition, start in starts.items()}


class RecordingLauncher:
    def __init__(self, launcher: SparkLauncher) -> None:
        self._launcher = launcher
        self._running: list[SparkGeneration] = []

    def launch(self, plan: GenerationPlan) -> RunningTasks[TaskResult]:
        self._running.append(self._launcher.launch(plan))
        return self._running[-1]

    @property
    def results(self) -> list[TaskResult]:
        return [result for running in self._running for result in running.results()]


def driver_of(
    site: Site, spark: SparkContext, watcher: Any = None
) -> tuple[ConnectorDriver, RecordingLauncher]:
    written = json.loads(site.config.read_text())
    raw = {"name": written["name"], **written["config"]}
    connector = connector_class(raw["connector.class"])()
    config = connector.config_class.parse(raw)
    store = open_store(site.store, create=True)
    source = TopicDirectorySource(str(site.topics))
    spec = GenerationSpec(site.store, identify(store), config.name, 0)
    launcher = RecordingLauncher(SparkLauncher(spark, source, connector.columns(config), spec))
    driver = ConnectorDriver(
        Environment(store),
        source=source,
        connector=connector,
        config=config,
        raw=raw,
        launcher=launcher,
        listener=watcher or Listener(),
    )
    return driver, launcher
