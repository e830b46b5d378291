"""A sink's cluster: its log, and the sink's own driver and task code."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from property_tests.simulation.cluster import Cluster, SimulatedLauncher
from property_tests.simulation.world import Process, World
from sinksdk.connector import SinkConnector
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.engine.worker import ClosingRequest
from sinksdk.records import OffsetRange, SinkRecord, SinkRecords, TopicPartition
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.session import Settings
from sinksdk.spark.executor import run_attempt
from sinksdk.spark.generation_spec import GenerationSpec
from sinksdk.spark.task_result import TaskResult
from sinksdk.spark.watches import ClosingWatch
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from sinksdk.topics import Subscription


class LateRow(NamedTuple):
    """A row that was held back, and is handed over to a task after later ones.

    Args:
        partition: whose.
        offset: its offset.
        highest: the highest offset that came before it.
    """

    partition: TopicPartition
    offset: int
    highest: int


class Log:
    """The source: partitions that grow. Offsets may have gaps. Now and then it breaks their order.

    Args:
        partitions: how many, of topic ``orders``.
        seed: of the readings in which a row comes late. Dice of their own leave other schedules as they are.
    """

    def __init__(self, partitions: int, seed: int) -> None:
        self.dice = random.Random(f"order {seed}")  # noqa: S311 - chance, not secrets
        self.breaks_order = 0.0
        """Chance that a row comes late when a range is read; the next reading may be in order again."""
        self.withheld: dict[TopicPartition, set[int]] = defaultdict(set)
        """Offsets that some reading has held back: a commit may have passed over them before they came."""
        self.on_late: Callable[[LateRow], None] = lambda _: None
        """Told of each late row before it is handed over."""
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

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        """See :meth:`sinksdk.topics.Source.partitions`."""
        return {partition: OffsetRange(0, end) for partition, end in self.ends.items()}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """None: no topic of the simulation is ever made again."""
        return {}

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        """See :meth:`sinksdk.topics.Source.first_records`."""
        return {
            partition: next(
                (r.offset for r in self.records[partition] if r.offset in range(*asked)), asked.end
            )
            for partition, asked in ranges.items()
        }

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Any:
        """Never called: tasks of a simulation get their records from :meth:`batches`."""
        raise NotImplementedError

    @contextmanager
    def reading(
        self,
        world: World,
        ranges: Mapping[TopicPartition, OffsetRange],
        overrides: Mapping[str, str],
    ) -> Iterator[Iterator[SinkRecords | None]]:
        """A task's input, as a reader gives it."""
        yield self.batches(world, ranges)

    def batches(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> Iterator[SinkRecords | None]:
        """The records of ranges, in batches of any size."""
        for partition, offsets in ranges.items():
            rows = [row for row in self.records[partition] if offsets.start <= row.offset < offsets.end]
            late, rest = self._hold_back(rows)
            yield from _in_batches(world, rows)
            if late is not None:
                self.on_late(LateRow(partition, late.offset, rows[-1].offset))
                yield _batch([late])
                yield from _in_batches(world, rest)

    def _hold_back(self, rows: list[SinkRecord]) -> tuple[SinkRecord | None, list[SinkRecord]]:
        """Take one row out, maybe, and those that come after it when it comes."""
        if len(rows) < 2 or self.dice.random() >= self.breaks_order:
            return None, []
        place = self.dice.randrange(len(rows) - 1)
        late = rows.pop(place)
        comes_after = self.dice.randint(place + 1, len(rows))
        rest = rows[comes_after:]
        del rows[comes_after:]
        self.withheld[late.topic_partition].add(late.offset)
        return late, rest


def _in_batches(world: World, rows: Sequence[SinkRecord]) -> Iterator[SinkRecords | None]:
    """Rows in batches of any size; now and then nothing comes for a while."""
    while rows:
        if world.dice.random() < 0.1:
            world.sleep(0.1)
            yield None
        count = world.dice.choice((1, 3, 9, 30))
        yield _batch(rows[:count])
        rows = rows[count:]


def _batch(rows: Sequence[SinkRecord]) -> SinkRecords:
    columns = {
        "offset": pa.array([row.offset for row in rows], pa.int64()),
        "value": pa.array([row.value for row in rows], pa.binary()),
    }
    return SinkRecords(rows[0].topic_partition, pa.RecordBatch.from_pydict(columns))


class SinkCluster(Cluster):
    """A cluster with a log that grows, and a sink that reads it.

    Args:
        world: the scheduler.
        name: the connector's name.
        connector: makes the connector.
        raw: its configuration.
        partitions: of the source.
        on_end: told of each task process that has ended by itself, in it.
        on_result: told what a task process reports, in it.
        group: what the commits are mirrored to, if anything.
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
        on_result: Callable[[TaskResult], None] = lambda _: None,
        group: OffsetGroup | None = None,
    ) -> None:
        super().__init__(world, name, raw, on_end=on_end)
        self.log = Log(partitions, world.seed)
        self._on_result = on_result
        self._connector = connector
        self._group = group

    def to_delete(self, record: ConnectorRecord) -> tuple[SinkConnector, Settings]:
        """See :meth:`Cluster.to_delete`."""
        connector = self._connector()
        return connector, connector.config_class.parse(record.config)

    def group_of(self, record: ConnectorRecord) -> OffsetGroup | None:
        """See :meth:`Cluster.group_of`."""
        return self._group

    def driver(
        self, raw: Mapping[str, str], environment: Environment, launcher: SimulatedLauncher
    ) -> ConnectorDriver:
        """See :meth:`Cluster.driver`."""
        connector = self._connector()
        return ConnectorDriver(
            environment,
            source=self.log,
            connector=connector,
            config=connector.config_class.parse(raw),
            raw=raw,
            launcher=launcher,
            group=self._group,
        )

    def attempt(self, plan: GenerationPlan, task: int) -> TaskResult:
        """See :meth:`Cluster.attempt`."""
        result = run_attempt(
            GenerationSpec("simulated:", "simulated", self.name, plan.generation),
            self.store(),
            task,
            partial(self.log.reading, self.world),
            clock=self.world,
            watch=self._watch,
        )
        self._on_result(result)
        return result

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
