"""Simulate drivers, the tasks of their generations, and faults; the code of drivers and tasks is real."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from property_tests.simulation.store import Bystander, Records, SimulatedStore
from property_tests.simulation.world import Process, World
from sinksdk.connector import Connector
from sinksdk.context import ClosingReason
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import OpenedSink
from sinksdk.control.requests import ClosingSignal
from sinksdk.errors import ConnectException, FencedException
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.session import Settings
from sinksdk.runtime.worker_connector import Driver, WorkerConnector
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from tests.helpers.inline import INLINE

_ATTEMPTS = 4  # the default of Spark's spark.task.maxFailures


@dataclass
class Slot:
    number: int
    attempts: list[Process] = field(default_factory=list)
    failures: int = 0
    result: Any = None


class SimulatedGeneration:
    # As in Spark, failed tasks are retried, slow ones get a copy, and the first success counts.
    def __init__(self, cluster: Cluster, plan: GenerationPlan, driver: str) -> None:
        self._cluster = cluster
        self._plan = plan
        self._driver = driver
        self._world = cluster.world
        self._is_cancelled = False
        self.slots = [Slot(number) for number in range(len(plan.tasks))]
        for slot in self.slots:
            self.attempt(slot)

    @property
    def is_over(self) -> bool:
        return (
            self._is_cancelled
            or all(slot.result is not None for slot in self.slots)
            or any(slot.failures >= _ATTEMPTS for slot in self.slots)
        )

    def attempt(self, slot: Slot) -> None:
        name = f"{self._driver} generation {self._plan.generation} task {slot.number}"
        process = self._world.spawn(f"{name} attempt {len(slot.attempts) + 1}", lambda: self._run(slot))
        slot.attempts.append(process)

    def _run(self, slot: Slot) -> None:
        world = self._world
        try:
            result = self._cluster.attempt(self._plan, slot.number)
        except Exception as error:  # noqa: BLE001 - as Spark sees it, whatever it is
            world.tell(f"ends: {type(error).__name__}: {error}")
            world.happened[f"attempt ended by {type(error).__name__}"] += 1
        else:
            if slot.result is None and not self._is_cancelled:
                slot.result = result
                world.tell("reports its result")
        self._cluster.on_end(world.current)

    def wait(self, timeout: float) -> bool:
        if not self.is_over:
            self._world.sleep(timeout)
        for slot in self.slots:
            if slot.result is None and not self.is_over and not any(p.is_alive for p in slot.attempts):
                slot.failures += 1
                if slot.failures < _ATTEMPTS:
                    self.attempt(slot)
        if self.is_over:
            self._leave()
        return self.is_over

    def results(self) -> Sequence[Any]:
        if self._is_cancelled or any(slot.result is None for slot in self.slots):
            message = "the simulated job failed"
            raise ConnectException(message)
        return [slot.result for slot in self.slots if slot.result is not None]

    def cancel(self) -> None:
        self._is_cancelled = True
        self._leave()

    def _leave(self) -> None:
        # Tasks on an executor that is cut off from the network continue.
        for slot in self.slots:
            for process in slot.attempts:
                if process.is_alive:
                    self._cluster.abandon(process)


class Cluster(ABC):
    def __init__(
        self,
        world: World,
        name: str,
        raw: Mapping[str, str],
        *,
        on_end: Callable[[Process], None] = lambda _: None,
    ) -> None:
        self.world = world
        self.name = name
        self.records = Records()
        self.on_end = on_end
        self.raw = raw
        self._drivers: dict[Process, ClosingSignal] = {}
        self._generations: list[SimulatedGeneration] = []
        self._orphans: list[Process] = []
        # An operator's changes of settings apply to drivers that start after them.
        self.settings: dict[str, str] = {}
        self.started = 0
        self.deletions = 0
        self.operators: list[Process] = []
        # Per driver that has ended: "well", or the name of its error.
        self.ended: dict[str, str] = {}

    @abstractmethod
    def driver(
        self, raw: Mapping[str, str], environment: Environment, launcher: SimulatedLauncher
    ) -> Driver: ...

    @abstractmethod
    def attempt(self, plan: GenerationPlan, task: int) -> Any: ...

    def store(self) -> SimulatedStore:
        return SimulatedStore(self.world, self.records)

    @property
    def drivers(self) -> list[Process]:
        return [process for process in self._drivers if process.is_alive]

    def attempts(self) -> list[Process]:
        slots = [slot for generation in self._generations for slot in generation.slots]
        return [process for slot in slots for process in slot.attempts if process.is_alive]

    def start_driver(self, *, until_caught_up: bool = False, **settings: str) -> Process:
        self.started += 1
        raw = {**self.raw, **settings, **self.settings}
        name = f"driver {self.started}"
        signal = SimulatedSignal(self.world)

        def driver(environment: Environment) -> Driver:
            written = raw if environment.record is None else environment.record.config
            return self.driver(written, environment, SimulatedLauncher(self, name))

        def run() -> None:
            try:
                WorkerConnector(
                    self._environment(signal), self.name, driver, self._openers, brings_config=True
                ).run(until_caught_up=until_caught_up)
                end = "well"
            except Exception as error:
                end = type(error).__name__
                self.world.tell(f"ends: {end}: {error}")
                if not isinstance(error, (FencedException, ConnectException)):
                    raise
            self.ended[name] = end
            self.world.happened[f"driver ended: {end}"] += 1

        return self._spawn(name, run, signal)

    def start_deletion(self) -> Process:
        self.deletions += 1
        signal = SimulatedSignal(self.world)

        def run() -> None:
            try:
                WorkerConnector(self._environment(signal), self.name, None, self._openers).run()
                end = "well"
            except ConnectException as error:
                end = type(error).__name__
                self.world.tell(f"ends: {end}: {error}")
            self.world.happened[f"deletion ended: {end}"] += 1

        return self._spawn(f"deletion {self.deletions}", run, signal)

    def start_operator(self, what: str, ask: Callable[[Herder], object]) -> None:
        def run() -> None:
            herder = Herder(self.store(), self.world, sinks=self.opened, executors=INLINE.calls)
            try:
                ask(herder)
                end = "well"
            except ConnectException as error:
                end = type(error).__name__
                self.world.tell(f"ends: {end}: {error}")
            self.world.happened[f"operator: {what}: {end}"] += 1

        self.operators.append(self.world.spawn(f"operator {len(self.operators) + 1}", run))

    def opened(self, raw: Mapping[str, str]) -> OpenedSink:
        raise NotImplementedError

    def _environment(self, signal: ClosingSignal) -> Environment:
        return Environment(self.store(), clock=self.world, threads=INLINE, jitter=lambda: 1.0, signal=signal)

    @property
    def _openers(self) -> Openers:
        return Openers(self.to_delete, self.group_of)

    def _spawn(self, name: str, run: Callable[[], None], signal: ClosingSignal) -> Process:
        process = self.world.spawn(name, run)
        self._drivers[process] = signal
        self.world.tell(f"{name} is started")
        return process

    def to_delete(self, record: ConnectorRecord) -> tuple[Connector, Settings]:
        raise NotImplementedError

    def group_of(self, record: ConnectorRecord) -> OffsetGroup | None:
        return None

    @property
    def is_deleting(self) -> bool:
        herder = Herder(Bystander(self.records.stored))
        return self.name in herder.connectors() and herder.connector(self.name).deleted

    def ask(self, process: Process, reason: ClosingReason, *, final: bool) -> None:
        self.world.tell(f"{process.name} is asked: {reason.name}")
        self.world.happened[f"asked: {reason.name}"] += 1
        self._drivers[process].request(reason, final=final)

    def wish(self, what: str, **config: str) -> None:
        herder = Herder(Bystander(self.records.stored))
        if self.name not in herder.connectors() or self.is_deleting:
            return  # no driver has claimed the connector yet, or none will again
        self.world.tell(f"an operator asks for {what}")
        self.world.happened[f"operator: {what}"] += 1
        if what == "configure":
            herder.configure(self.name, {**herder.connector(self.name).config, **config})
        else:
            getattr(herder, what)(self.name)

    def double(self) -> None:
        slots = [
            (generation, slot)
            for generation in self._generations
            for slot in generation.slots
            if not generation.is_over and slot.result is None and any(p.is_alive for p in slot.attempts)
        ]
        if slots:
            generation, slot = self.world.dice.choice(slots)
            self.world.happened["second copy of a task"] += 1
            generation.attempt(slot)

    def launched(self, generation: SimulatedGeneration) -> None:
        self._generations.append(generation)

    def abandon(self, process: Process) -> None:
        # The process is killed, or cut off from the network and frozen for a while.
        if self.world.dice.random() < 0.5:
            self._orphans.append(process)
        else:
            self.world.happened["task left behind"] += 1
            self.world.freeze(process, self.world.dice.choice((0.0, 5.0, 500.0)))

    def reap(self) -> None:
        # No process can kill itself, so the scheduler calls this method.
        for process in self._orphans:
            self.world.kill(process)
        self._orphans.clear()


class SimulatedLauncher:
    def __init__(self, cluster: Cluster, driver: str) -> None:
        self._cluster = cluster
        self._driver = driver

    def launch(self, plan: GenerationPlan) -> SimulatedGeneration:
        generation = SimulatedGeneration(self._cluster, plan, self._driver)
        self._cluster.launched(generation)
        return generation


class SimulatedSignal(ClosingSignal):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float) -> bool:
        give_up = self._world.now() + timeout
        while self.reason is None and self._world.now() < give_up:
            self._world.sleep(min(1.0, max(give_up - self._world.now(), 0.001)))
        return self.reason is not None
