"""Simulate a source's cluster: its target, and the source's own driver and task code."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from property_tests.simulation.cluster import Cluster, SimulatedLauncher
from property_tests.simulation.threads import SimulatedThreads
from property_tests.simulation.world import Process, World
from sinksdk.engine.clock import Threads
from sinksdk.engine.writer import Target
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.source_driver import SourceDriver
from sinksdk.source.connector import SourceConnector
from sinksdk.store.records import GenerationPlan
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.source_task import run_source_attempt
from sinksdk.worker.task_result import SourceTaskResult


class SourceCluster(Cluster):
    def __init__(
        self,
        world: World,
        name: str,
        connector: Callable[[], SourceConnector],
        raw: Mapping[str, str],
        *,
        target: Target,
        on_end: Callable[[Process], None] = lambda _: None,
    ) -> None:
        super().__init__(world, name, raw, on_end=on_end)
        self._connector = connector
        self._target = target

    def driver(
        self, raw: Mapping[str, str], environment: Environment, launcher: SimulatedLauncher
    ) -> SourceDriver:
        connector = self._connector()
        return SourceDriver(
            environment,
            connector=connector,
            config=connector.config_class.parse(raw),
            raw=raw,
            target=self._target,
            launcher=launcher,
        )

    def attempt(self, plan: GenerationPlan, task: int) -> SourceTaskResult:
        return run_source_attempt(
            GenerationSpec("simulated:", "simulated", self.name, plan.generation, target=self._target),
            self.store(),
            task,
            clock=self.world,
            threads=self._threads,
        )

    def _threads(self, name: str) -> Threads:
        return SimulatedThreads(self.world, name)
