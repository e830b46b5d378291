"""Keep a sink's offsets in a table whose backups are restored, and check the invariants after each step."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from property_tests.simulation.sink_cluster import SinkCluster
from property_tests.simulation.world import World
from sinksdk import (
    ConnectException,
    ConnectorConfig,
    OffsetAndMetadata,
    RetriableException,
    SinkConnector,
    SinkRecords,
    SinkTask,
    TopicPartition,
)

CONNECTOR = "table"


@dataclass(frozen=True, slots=True)
class Content:
    # ``watermark`` is the offset after the last row. A generation older than the owner inserts nothing.
    rows: tuple[int, ...] = ()
    watermark: int = 0
    generation: int = 0


class Table:
    # Rows and watermarks change together: a reader always finds a prefix of the log.
    def __init__(self, world: World) -> None:
        self._world = world
        self.content: dict[TopicPartition, Content] = {}
        self.backups: list[dict[TopicPartition, Content]] = [{}]
        self.restored = 0
        self.log: Mapping[TopicPartition, Sequence[int]] = {}

    def own(self, partition: TopicPartition, generation: int) -> int:
        def effect() -> int:
            found = self._owned(partition, generation)
            self.content[partition] = replace(found, generation=generation)
            return found.watermark

        return self._operate(f"owns {partition.partition}", effect)

    def insert(self, partition: TopicPartition, generation: int, offsets: Sequence[int], least: int) -> int:
        # A watermark below the lowest that the task has read comes from a restored backup.
        def effect() -> int:
            found = self._owned(partition, generation)
            if found.watermark < least:
                message = f"{partition}: the watermark went back to {found.watermark}"
                raise ConnectException(message)
            fresh = tuple(offset for offset in offsets if offset >= found.watermark)
            watermark = fresh[-1] + 1 if fresh else found.watermark
            self.content[partition] = Content((*found.rows, *fresh), watermark, generation)
            self._check(partition)
            return watermark

        return self._operate(f"inserts {list(offsets)} into {partition.partition}", effect)

    def keep(self) -> None:
        self.backups.append(dict(self.content))

    def restore(self) -> None:
        self.restored += 1
        lost = sum(len(found.rows) for found in self.content.values())
        self.content = dict(self._world.dice.choice(self.backups))
        lost -= sum(len(found.rows) for found in self.content.values())
        self._world.tell(f"a backup is restored: {lost} rows are lost")
        self._world.happened["backup restored"] += lost > 0

    def _owned(self, partition: TopicPartition, generation: int) -> Content:
        found = self.content.get(partition, Content())
        if found.generation > generation:
            message = f"{partition} belongs to generation {found.generation}"
            raise ConnectException(message)
        return found

    def _check(self, partition: TopicPartition) -> None:
        found = self.content[partition]
        expected = tuple(offset for offset in self.log[partition] if offset < found.watermark)
        if found.rows != expected:
            missing = sorted(set(expected) - set(found.rows))
            self._world.violation(
                f"{partition}: the table has {len(found.rows)} of {len(expected)} rows: {missing}"
            )

    def _operate(self, what: str, effect: Callable[[], int]) -> int:
        return self._world.operate(what, effect, lost=RetriableException, refused=RetriableException)


class TableTask(SinkTask):
    def __init__(self) -> None:
        self.cluster = TableCluster.current
        self.watermarks: dict[TopicPartition, int] = {}
        self.asked: dict[TopicPartition, int] = {}

    def open(self, partitions: Collection[TopicPartition]) -> None:
        world = self.cluster.world
        for partition in partitions:
            watermark = self.cluster.table.own(partition, self.context.generation())
            self.watermarks[partition] = watermark
            self.asked.pop(partition, None)
            commit = self.context.committed(partition) or OffsetAndMetadata(0)
            known = int(commit.metadata or 0)
            if known > commit.offset:
                world.violation(f"{commit.offset} is committed with what the task said of {known}")
            if watermark > commit.offset or watermark < known:
                world.happened["asked forward" if watermark > commit.offset else "asked back"] += 1
                world.tell(f"asks for {partition.partition} at {watermark}, committed is {commit.offset}")
                self.asked[partition] = watermark
                self.context.offset({partition: watermark})

    def put(self, records: SinkRecords) -> None:
        partition = records.partition
        if records.first_offset < self.asked.get(partition, 0) and self.cluster.world.current.is_alive:
            self.cluster.world.violation(f"{partition}: {records.first_offset} is put, which was skipped")
        self.watermarks[partition] = self.cluster.table.insert(
            partition, self.context.generation(), records.offsets.tolist(), self.watermarks[partition]
        )

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        # A skip is committed only up to the end of the range; the next range's task commits the rest of it.
        return {
            p: replace(offset, metadata=str(min(self.watermarks[p], offset.offset)))
            for p, offset in offsets.items()
        }


class TableConnector(SinkConnector):
    config_class, task_class = ConnectorConfig, TableTask


@dataclass(eq=False)
class TableCluster:
    current: ClassVar[TableCluster]

    world: World
    table: Table = field(init=False)
    cluster: SinkCluster = field(init=False)

    def __post_init__(self) -> None:
        TableCluster.current = self
        dice = self.world.dice
        self.table = Table(self.world)
        raw = {
            "name": CONNECTOR,
            "connector.class": f"{__name__}:{TableConnector.__name__}",
            "topics": "orders",
            "tasks.max": str(dice.randint(1, 2)),
            "offset.flush.interval.ms": dice.choice(("500", "60000")),
            "generation.max.records": str(dice.choice((8, 20, 1_000))),
            "errors.retry.timeout": "3000",
            "restart.backoff.ms": "1000",
            "restart.max.attempts": "30",
        }
        partitions = dice.randint(1, 3)
        self.cluster = SinkCluster(self.world, CONNECTOR, TableConnector, raw, partitions=partitions)
        self.table.log = _Offsets(self.cluster)

    def check_end(self) -> None:
        for partition, rows in self.table.log.items():
            found = self.table.content.get(partition, Content())
            if found.rows != tuple(rows):
                self.world.violation(
                    f"{partition}: in the end the table has {len(found.rows)} of {len(rows)} rows"
                )


class _Offsets(Mapping[TopicPartition, Sequence[int]]):
    def __init__(self, cluster: SinkCluster) -> None:
        self._log = cluster.log

    def __getitem__(self, partition: TopicPartition) -> Sequence[int]:
        return self._log.rows(partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._log.records)

    def __len__(self) -> int:
        return len(self._log.records)
