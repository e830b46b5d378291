"""Drivers, their generations' tasks, and what goes wrong with both; driver and task code are the real one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from sinksdk.config import ConnectorConfig
from sinksdk.connector import SinkConnector
from sinksdk.context import ClosingReason
from sinksdk.engine.worker import ClosingRequest
from sinksdk.errors import ConnectException, FencedException
from sinksdk.records import OffsetRange, SinkRecord, TopicPartition
from sinksdk.runtime.author import AtOnce
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.herder import Herder
from sinksdk.runtime.supervisor import ClosingSignal
from sinksdk.runtime.wishes import Wishes
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.sources import Subscription
from sinksdk.spark.batches import RANGE
from sinksdk.spark.closing_watch import ClosingWatch
from sinksdk.spark.executor import run_attempt
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.task_result import TaskResult
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan
from sinksdk.testing.simulation.store import Bystander, Records, SimulatedStore
from sinksdk.testing.simulation.world import Process, World

_ATTEMPTS = 4  # as Spark's spark.task.maxFailures


class Log:
    """The source: partitions that grow. Offsets may have gaps.

    Args:
        partitions: how many, of topic ``orders``.
    """

    def __init__(self, partitions: int) -> None:
        self.records: dict[TopicPartition, list[SinkRecord]] = {
            TopicPartition("orders", number): [] for number in range(partitions)
        }
        self.ends = dict.fromkeys(self.records, 0)

    def produce(self, partition: TopicPartition, count: int, gap: int = 0) -> None:
        """Append records after a gap of offsets that hold none."""
        first = self.ends[partition] + gap
        self.records[partition] += [
            SinkRecord(*partition, offset=offset, value=b"%030d" % offset)
            for offset in range(first, first + count)
        ]
        self.ends[partition] = first + count + gap // 2

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:  # noqa: ARG002
        """See :meth:`sinksdk.sources.Source.partitions`."""
        return {partition: OffsetRange(0, end) for partition, end in self.ends.items()}

    @property
    def reads_together(self) -> bool:
        """Nothing is read here: the simulated tasks have the records at hand."""
        return False

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:  # noqa: ARG002
        """None: no topic of the simulation is ever made again."""
        return {}

    def first_record(self, partition: TopicPartition, offsets: OffsetRange) -> int:
        """See :meth:`sinksdk.sources.Source.first_record`."""
        inside = (r.offset for r in self.records[partition] if offsets.start <= r.offset < offsets.end)
        return next(inside, offsets.end)

    def read(self, spark: Any, ranges: Mapping[TopicPartition, OffsetRange]) -> Any:
        """Never called: tasks of a simulation get their batches from :meth:`batches`."""
        raise NotImplementedError

    def batches(self, world: World, number: int, task: TaskPlan) -> Iterator[pa.RecordBatch | None]:
        """A task's input as Spark would hand it over, in batches of any size."""
        yield _batch(-1 - number, [SinkRecord("", 0, 0)])
        for at, planned in enumerate(task.ranges):
            rows = [
                record
                for record in self.records[planned.topic_partition]
                if planned.start <= record.offset < planned.end
            ]
            while rows:
                if world.dice.random() < 0.1:  # noqa: PLR2004 - now and then nothing came for a while
                    world.sleep(0.1)
                    yield None
                count = world.dice.choice((1, 3, 9, 30))
                yield _batch(at, rows[:count])
                rows = rows[count:]


def _batch(at: int, rows: Sequence[SinkRecord]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([at] * len(rows), pa.int32()),
            pa.array([row.offset for row in rows], pa.int64()),
            pa.array([row.value for row in rows], pa.binary()),
        ],
        names=[RANGE, "offset", "value"],
    )


@dataclass
class Slot:
    """One task of a generation, however many attempts at it run."""

    number: int
    attempts: list[Process] = field(default_factory=list)
    failures: int = 0
    result: TaskResult | None = None


class SimulatedGeneration:
    """A generation's job, as Spark runs one: failed tasks again, copies of slow ones, the first one wins.

    Args:
        cluster: where it runs.
        plan: what it does.
        driver: whose it is.
    """

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
        """Whether the job has ended."""
        return (
            self._is_cancelled
            or all(slot.result is not None for slot in self.slots)
            or any(slot.failures >= _ATTEMPTS for slot in self.slots)
        )

    def attempt(self, slot: Slot) -> None:
        """Start one more attempt at a task."""
        name = f"{self._driver} generation {self._plan.generation} task {slot.number}"
        process = self._world.spawn(f"{name} attempt {len(slot.attempts) + 1}", lambda: self._run(slot))
        slot.attempts.append(process)

    def _run(self, slot: Slot) -> None:
        cluster, world = self._cluster, self._world
        try:
            with cluster.around():
                result = run_attempt(
                    GenerationSpec("simulated:", "simulated", cluster.name, self._plan.generation),
                    cluster.store(),
                    slot.number,
                    cluster.log.batches(world, slot.number, self._plan.tasks[slot.number]),
                    clock=world,
                    epoch=world.time,
                    watch=self._watch,
                )
        except Exception as error:  # noqa: BLE001 - as Spark sees it, whatever it is
            world.tell(f"ends: {type(error).__name__}: {error}")
            world.happened[f"attempt ended by {type(error).__name__}"] += 1
        else:
            if slot.result is None and not self._is_cancelled:
                slot.result = result
                world.tell("reports its result")

    @contextmanager
    def _watch(self, watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
        """Look between two batches, at the real interval."""
        watch.look()
        next_look = self._world.now() + interval

        def request() -> ClosingRequest | None:
            nonlocal next_look
            if self._world.now() >= next_look:
                watch.look_again()
                next_look = self._world.now() + interval
            return watch.request()

        yield request

    def wait(self, timeout: float) -> bool:
        """See :class:`~sinksdk.runtime.supervisor.RunningGeneration`. Here Spark notices what has ended."""
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

    def results(self) -> Sequence[TaskResult]:
        """What its tasks reported."""
        if self._is_cancelled or any(slot.result is None for slot in self.slots):
            message = "the simulated job failed"
            raise ConnectException(message)
        return [slot.result for slot in self.slots if slot.result is not None]

    def cancel(self) -> None:
        """End it; some of its processes are beyond reach and go on."""
        self._is_cancelled = True
        self._leave()

    def _leave(self) -> None:
        """Spark kills what still runs; an executor cut off from the network does not hear of it."""
        for slot in self.slots:
            for process in slot.attempts:
                if process.is_alive:
                    self._cluster.abandon(process)


class Cluster:
    """Everything one connector needs, any number of drivers for it, and a log that grows.

    Args:
        world: the scheduler.
        name: the connector's name.
        connector: makes the connector.
        raw: its configuration.
        partitions: of the source.
        around: entered in each task process around everything it does.
    """

    def __init__(
        self,
        world: World,
        name: str,
        connector: Callable[[], SinkConnector],
        raw: Mapping[str, str],
        *,
        partitions: int,
        around: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self.world = world
        self.name = name
        self.records = Records()
        self.log = Log(partitions)
        self.around = around
        self._connector = connector
        self._raw = raw
        self._drivers: dict[Process, ClosingSignal] = {}
        self._generations: list[SimulatedGeneration] = []
        self._orphans: list[Process] = []
        self.started = 0
        self.ended: dict[str, str] = {}
        """How each driver that has ended did so: ``well``, or what it raised."""

    def store(self) -> SimulatedStore:
        """The store as one process reaches it."""
        return SimulatedStore(self.world, self.records)

    @property
    def drivers(self) -> list[Process]:
        """Those that run."""
        return [process for process in self._drivers if process.is_alive]

    def start_driver(self, *, until_caught_up: bool = False, **settings: str) -> Process:
        """Start one more driver for the same connector, maybe with another configuration."""
        self.started += 1
        raw = {**self._raw, **settings}
        name = f"driver {self.started}"
        signal = SimulatedSignal(self.world)

        def driver(record: ConnectorRecord | None, wishes: Wishes) -> ConnectorDriver:
            written = raw if record is None else record.config
            connector = self._connector()
            return ConnectorDriver(
                store=self.store(),
                source=self.log,
                connector=connector,
                config=connector.config_class.parse(written),
                raw=written,
                launcher=_Launcher(self, name),
                clock=self.world,
                signal=signal,
                background=_at_once,
                callers=AtOnce,
                jitter=lambda: 1.0,
                wishes=wishes,
                record=record,
            )

        def run() -> None:
            try:
                WorkerConnector(
                    self.store(),
                    self.name,
                    driver,
                    _never_deleted,
                    brings_config=True,
                    signal=signal,
                    clock=self.world,
                    callers=AtOnce,
                ).run(until_caught_up=until_caught_up)
                end = "well"
            except Exception as error:
                end = type(error).__name__
                self.world.tell(f"ends: {end}: {error}")
                if not isinstance(error, (FencedException, ConnectException)):
                    raise
            self.ended[name] = end
            self.world.happened[f"driver ended: {end}"] += 1

        process = self.world.spawn(name, run)
        self._drivers[process] = signal
        self.world.tell(f"{name} is started")
        return process

    def ask(self, process: Process, reason: ClosingReason, *, final: bool) -> None:
        """Somebody asks a driver for a rebalance, or to end."""
        self.world.tell(f"{process.name} is asked: {reason.name}")
        self.world.happened[f"asked: {reason.name}"] += 1
        self._drivers[process].ask(reason, final=final)

    def wish(self, what: str, **config: str) -> None:
        """An operator asks something of the connector, through the store; nobody loses such a wish.

        Args:
            what: a method of :class:`~sinksdk.runtime.herder.Herder`.
            config: for ``configure``: settings that differ.
        """
        herder = Herder(Bystander(self.records.stored))
        if self.name not in herder.connectors():
            return  # no driver has come so far yet
        self.world.tell(f"an operator asks for {what}")
        self.world.happened[f"operator: {what}"] += 1
        if what == "configure":
            herder.configure(self.name, {**herder.connector(self.name).config, **config})
        else:
            getattr(herder, what)(self.name)

    def double(self) -> None:
        """Spark starts a copy of a task that still runs."""
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
        """A driver has started a generation."""
        self._generations.append(generation)

    def abandon(self, process: Process) -> None:
        """A task's process that nobody waits for any more: killed, or cut off and frozen for a while."""
        if self.world.dice.random() < 0.5:  # noqa: PLR2004 - half of them
            self._orphans.append(process)
        else:
            self.world.happened["task left behind"] += 1
            self.world.freeze(process, self.world.dice.choice((0.0, 5.0, 500.0)))

    def reap(self) -> None:
        """Kill what was given up. Called by the scheduler, since no process can kill itself."""
        for process in self._orphans:
            self.world.kill(process)
        self._orphans.clear()


class _Launcher:
    def __init__(self, cluster: Cluster, driver: str) -> None:
        self._cluster = cluster
        self._driver = driver

    def launch(self, plan: GenerationPlan) -> SimulatedGeneration:
        generation = SimulatedGeneration(self._cluster, plan, self._driver)
        self._cluster.launched(generation)
        return generation


def _at_once(run: Callable[[], None]) -> None:
    """The only thread is the scheduler's."""
    run()


def _never_deleted(record: ConnectorRecord) -> tuple[SinkConnector, ConnectorConfig]:
    raise NotImplementedError


class SimulatedSignal(ClosingSignal):
    """Waits in virtual time.

    Args:
        world: whose.
    """

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def wait(self, timeout: float) -> bool:
        """See :meth:`ClosingSignal.wait`."""
        give_up = self._world.now() + timeout
        while self.reason is None and self._world.now() < give_up:
            self._world.sleep(min(1.0, max(give_up - self._world.now(), 0.001)))
        return self.reason is not None
