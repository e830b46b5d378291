"""A sink's cluster: its log, and the sink's own driver and task code."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from sinksdk.connector import SinkConnector
from sinksdk.engine.worker import ClosingRequest
from sinksdk.records import OffsetRange, SinkRecord, TopicPartition
from sinksdk.runtime.author import AtOnce
from sinksdk.runtime.closing_signal import ClosingSignal
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.wishes import Wishes
from sinksdk.sources import Subscription
from sinksdk.spark.batches import RANGE
from sinksdk.spark.closing_watch import ClosingWatch
from sinksdk.spark.executor import run_attempt
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.task_result import TaskResult
from sinksdk.store.records import ConnectorRecord, GenerationPlan, TaskPlan
from sinksdk.testing.simulation.cluster import Cluster, SimulatedLauncher
from sinksdk.testing.simulation.world import Process, World


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


class SinkCluster(Cluster):
    """A cluster with a log that grows, and a sink that reads it.

    Args:
        world: the scheduler.
        name: the connector's name.
        connector: makes the connector.
        raw: its configuration.
        partitions: of the source.
        on_end: told of each task process that has ended by itself, in it.
    """

    def __init__(
        self,
        world: World,
        name: str,
        connector: Callable[[], SinkConnector],
        raw: Mapping[str, str],
        *,
        partitions: int,
        on_end: Callable[[Process], None] = lambda _: None,
    ) -> None:
        super().__init__(world, name, raw, on_end=on_end)
        self.log = Log(partitions)
        self._connector = connector

    def driver(
        self,
        raw: Mapping[str, str],
        record: ConnectorRecord | None,
        wishes: Wishes,
        signal: ClosingSignal,
        launcher: SimulatedLauncher,
    ) -> ConnectorDriver:
        """See :meth:`Cluster.driver`."""
        connector = self._connector()
        return ConnectorDriver(
            store=self.store(),
            source=self.log,
            connector=connector,
            config=connector.config_class.parse(raw),
            raw=raw,
            launcher=launcher,
            clock=self.world,
            signal=signal,
            background=_at_once,
            callers=AtOnce,
            jitter=lambda: 1.0,
            wishes=wishes,
            record=record,
        )

    def attempt(self, plan: GenerationPlan, task: int) -> TaskResult:
        """See :meth:`Cluster.attempt`."""
        return run_attempt(
            GenerationSpec("simulated:", "simulated", self.name, plan.generation),
            self.store(),
            task,
            self.log.batches(self.world, task, plan.tasks[task]),
            clock=self.world,
            epoch=self.world.time,
            watch=self._watch,
        )

    @contextmanager
    def _watch(self, watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
        """Look between two batches, at the real interval."""
        watch.look()
        next_look = self.world.now() + interval

        def request() -> ClosingRequest | None:
            nonlocal next_look
            if self.world.now() >= next_look:
                watch.look_again()
                next_look = self.world.now() + interval
            return watch.request()

        yield request


def _at_once(run: Callable[[], None]) -> None:
    """The only thread is the scheduler's."""
    run()
