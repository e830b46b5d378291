"""Simulate a sink's cluster: its log, and the sink's own driver and task code."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa

from property_tests.simulation.cluster import Cluster, SimulatedLauncher
from property_tests.simulation.world import Process, World
from sinksdk.connector import SinkConnector
from sinksdk.control.consumer_group import OffsetGroup
from sinksdk.control.offsets import OpenedSink
from sinksdk.engine.commits import TopicIdCheck, always_valid
from sinksdk.engine.task_run import ClosingRequest, Unread
from sinksdk.errors import ConnectException
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import RECORD_COLUMNS, Header, SinkRecord, SinkRecords
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.session import Settings
from sinksdk.spark.transform_task import arranged
from sinksdk.store.records import ConnectorRecord, GenerationPlan
from sinksdk.topics import Subscription
from sinksdk.topics.base import Position
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.outside import Outside
from sinksdk.worker.sink_task import run_attempt
from sinksdk.worker.task_result import TaskResult
from sinksdk.worker.watches import ClosingWatch


class LateRow(NamedTuple):
    # ``highest`` is the highest offset that was read before the late row.
    partition: TopicPartition
    offset: int
    highest: int


class Bad(NamedTuple):
    # Of eight offsets in a row at most ``of_eight`` are bad, except that all are with probability ``blocks``.
    # With ``are_tombstones``, records without a value are bad: they are reported and skipped.
    of_eight: int
    blocks: float
    are_tombstones: bool = False


class Log:
    # Offsets may have gaps, and rows may come out of order. A transform may drop and multiply records; it
    # does the same at each reading. Keys and headers contain the offset, as values do. Late rows and the
    # transform have random generators of their own, so that they do not change other choices of a seed.
    def __init__(
        self,
        partitions: int,
        seed: int,
        *,
        is_transformed: bool = False,
        has_keys: bool = False,
        tombstones: int = 0,
        bad: Bad | None = None,
        topic: str = "orders",
    ) -> None:
        self.is_transformed = is_transformed
        self.tombstones = tombstones
        self.bad = bad
        self._has_keys = has_keys
        self._seed = seed
        chance = random.Random(f"transform {seed}")  # noqa: S311 - chance, not secrets
        self._drops_blocks = chance.choice((0.1, 0.4, 0.8)) if is_transformed else 0.0
        self._weights = chance.choice(((1, 0, 0, 0), (1, 4, 1, 1), (4, 2, 1, 1), (1, 1, 4, 4)))
        # Every n-th record has an empty value or none, and must be archived; 0: none.
        self.blanks = 0
        # Chance that a transform fails while a task's ranges are read.
        self.cuts = 0.0
        self.dice = random.Random(f"order {seed}")  # noqa: S311 - chance, not secrets
        # Chance that a row comes late when a range is read. The next reading may have it in order.
        self.breaks_order = 0.0
        # Offsets of late rows: a commit may have passed them before they were read.
        self.withheld: dict[TopicPartition, set[int]] = defaultdict(set)
        self.on_late: Callable[[LateRow], None] = lambda _: None
        self.records: dict[TopicPartition, list[SinkRecord]] = {
            TopicPartition(topic, number): [] for number in range(partitions)
        }
        self.expected: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in self.records}
        self.good: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in self.records}
        self.with_value: dict[TopicPartition, dict[int, int]] = {partition: {} for partition in self.records}
        self.letters: dict[TopicPartition, list[int]] = {partition: [] for partition in self.records}
        self.ends = dict.fromkeys(self.records, 0)

    def truncated(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, int | None]:
        raise NotImplementedError

    def produce(self, partition: TopicPartition, count: int, gap: int = 0) -> None:
        first = self.ends[partition] + gap
        produced = [self._record(partition, offset) for offset in range(first, first + count)]
        self.records[partition] += produced
        for record in produced:
            offset, times = record.offset, self._times(record)
            self.expected[partition][offset] = times
            if times and self.is_bad(partition, offset):
                self.letters[partition].append(offset)
                continue
            self.good[partition][offset] = times
            if not self.is_tombstone(offset):
                self.with_value[partition][offset] = times
        self.ends[partition] = first + count + gap // 2

    def _record(self, partition: TopicPartition, offset: int) -> SinkRecord:
        value = None if self.is_tombstone(offset) else b"%030d" % offset
        said: bytes | None = b"%d" % offset
        if value is not None and self.is_bad(partition, offset):
            # The converter refuses invalid UTF-8, and the archiver's task a missing value or key.
            if offset % 2:
                value = b"\xff" + value
            elif self._has_keys:
                said = None
            else:
                value = None
        if self.blanks and offset % self.blanks == 0:
            value = b"" if offset // self.blanks % 2 else None
        if not self._has_keys:
            return SinkRecord(*partition, offset=offset, value=value)
        return SinkRecord(*partition, offset=offset, key=said, value=value, headers=(Header("offset", said),))

    def is_bad(self, partition: TopicPartition, offset: int) -> bool:
        if self.bad is None:
            return False
        if self.is_tombstone(offset):
            return self.bad.are_tombstones
        block, place = divmod(offset, 8)
        chance = random.Random(f"{self._seed} bad {partition.partition} {block}")  # noqa: S311 - the same
        return chance.random() < self.bad.blocks or place in chance.choices(range(8), k=self.bad.of_eight)

    def is_tombstone(self, offset: int) -> bool:
        return bool(self.tombstones) and offset % self.tombstones == 0

    def times(self, record: SinkRecord) -> int:
        return self.expected[record.topic_partition][record.offset]

    def _times(self, record: SinkRecord) -> int:
        if not self.is_transformed:
            return 1
        place = f"{self._seed} {record.partition} "
        block = random.Random(f"{place}block {record.offset // 8}")  # noqa: S311 - chance, not secrets
        if block.random() < self._drops_blocks:
            return 0
        one = random.Random(f"{place}{record.offset}")  # noqa: S311 - the same
        return one.choices((0, 1, 2, 5), self._weights)[0]

    def rows(self, partition: TopicPartition) -> list[int]:
        return [offset for offset, times in self.expected[partition].items() for _ in range(times)]

    def partitions(self, subscription: Subscription) -> dict[TopicPartition, OffsetRange]:
        return {partition: OffsetRange(0, end) for partition, end in self.ends.items()}

    def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        return {}

    def topic_id_check(self, config: object, source: object, ids: Mapping[str, str]) -> TopicIdCheck:
        return always_valid

    def first_records(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Mapping[TopicPartition, int]:
        return {
            partition: next(
                (r.offset for r in self.records[partition] if r.offset in range(*asked)), asked.end
            )
            for partition, asked in ranges.items()
        }

    def reader(self, ranges: Mapping[TopicPartition, OffsetRange]) -> Any:
        # Simulated tasks read from batches() instead.
        raise NotImplementedError

    @contextmanager
    def reading(
        self,
        world: World,
        ranges: Mapping[TopicPartition, OffsetRange],
        overrides: Mapping[str, str],
    ) -> Iterator[Iterator[SinkRecords | Unread | None]]:
        yield self.transformed(world, ranges) if self.is_transformed else self.batches(world, ranges)

    def transformed(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> Iterator[SinkRecords | Unread]:
        late_rows: list[LateRow] = []
        left = self.dice.randrange(3) if self.dice.random() < self.cuts else None
        has_ended = True

        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal has_ended
            for number, batch in enumerate(self._transformed(world, ranges, late_rows)):
                if number == left:
                    world.happened["transform failed"] += 1
                    world.tell("the transform fails")
                    has_ended = False
                    return
                yield batch

        for item in arranged(rows(), lambda: (), lambda: has_ended):
            if isinstance(item, SinkRecords):
                late = next((row for row in late_rows if _begins(item, row)), None)
                if late is not None:
                    self.on_late(late)
            yield item

    def _transformed(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange], late_rows: list[LateRow]
    ) -> Iterator[pa.RecordBatch]:
        for partition, offsets in ranges.items():
            given = [row for row in self.records[partition] if offsets.start <= row.offset < offsets.end]
            rows = [row for row in given if self.times(row)]
            world.happened["transform dropped"] += len(given) - len(rows)
            world.happened["transform dropped all of a range"] += bool(given) and not rows
            late, rest = self._hold_back(rows)
            yield from self._multiplied(world, rows)
            if late is not None:
                late_rows.append(LateRow(partition, late.offset, rows[-1].offset))
                yield _wide([late] * self.times(late))
                yield from self._multiplied(world, rest)

    def _multiplied(self, world: World, rows: Sequence[SinkRecord]) -> Iterator[pa.RecordBatch]:
        left = [row for row in rows for _ in range(self.times(row))]
        world.happened["transform multiplied"] += sum(self.times(row) > 1 for row in rows)
        while left:
            if world.dice.random() < 0.1:
                world.sleep(0.1)
            count = world.dice.choice((1, 3, 9, 30))
            yield _wide(left[:count])
            left = left[count:]

    def batches(
        self, world: World, ranges: Mapping[TopicPartition, OffsetRange]
    ) -> Iterator[SinkRecords | None]:
        for partition, offsets in ranges.items():
            rows = [row for row in self.records[partition] if offsets.start <= row.offset < offsets.end]
            late, rest = self._hold_back(rows)
            yield from _in_batches(world, rows)
            if late is not None:
                if self.dice.random() < 0.5:  # so late that a commit has already skipped the row
                    world.sleep(1.0)
                    yield None
                self.on_late(LateRow(partition, late.offset, rows[-1].offset))
                yield batch_of([late])
                yield from _in_batches(world, rest)

    def _hold_back(self, rows: list[SinkRecord]) -> tuple[SinkRecord | None, list[SinkRecord]]:
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
    while rows:
        if world.dice.random() < 0.1:
            world.sleep(0.1)
            yield None
        count = world.dice.choice((1, 3, 9, 30))
        yield batch_of(rows[:count])
        rows = rows[count:]


def _begins(records: SinkRecords, row: LateRow) -> bool:
    return records.partition == row.partition and records.first_offset == row.offset


def _wide(rows: Sequence[SinkRecord]) -> pa.RecordBatch:
    columns = {
        "topic": pa.array([row.topic for row in rows], pa.string()),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
        **_columns(rows),
    }
    return pa.RecordBatch.from_pydict(columns)


def batch_of(rows: Sequence[SinkRecord]) -> SinkRecords:
    return SinkRecords(rows[0].topic_partition, pa.RecordBatch.from_pydict(_columns(rows)))


def _columns(rows: Sequence[SinkRecord]) -> dict[str, Any]:
    found = {"offset": [row.offset for row in rows], "value": [row.value for row in rows]}
    if rows[0].headers:
        found["key"] = [row.key for row in rows]
        found["headers"] = [[header._asdict() for header in row.headers] for row in rows]
    return {name: pa.array(column, RECORD_COLUMNS[name]) for name, column in found.items()}


class DeadLetters:
    # When a writer is killed, letters that its task did not wait for are lost.
    def __init__(self, world: World) -> None:
        self.world = world
        self.dice = random.Random(f"{world.seed} letters")  # noqa: S311 - chance, not secrets
        self.durable: Counter[tuple[TopicPartition, int]] = Counter()

    def send(self, record: SinkRecord) -> Future[None]:
        letter = _Letter(self, record)
        if self.dice.random() < 0.3:
            letter.try_to_write()
        return letter


class _Letter(Future[None]):
    def __init__(self, letters: DeadLetters, record: SinkRecord) -> None:
        super().__init__()
        self._letters = letters
        self._where = record.topic_partition, record.offset

    def try_to_write(self) -> None:
        def effect() -> None:
            self._letters.durable[self._where] += 1
            self._letters.world.happened["dead letter"] += 1
            self._letters.world.happened["dead letter written again"] += (
                self._letters.durable[self._where] > 1
            )

        what = f"dead letter of {self._where[0].partition} at {self._where[1]}"
        try:
            self._letters.world.operate(what, effect, lost=ConnectException, refused=ConnectException)
        except ConnectException as error:
            self.set_exception(error)
        else:
            self.set_result(None)

    def result(self, timeout: float | None = None) -> None:
        if not self.done():
            self.try_to_write()
        return super().result(timeout)


class SinkCluster(Cluster):
    def __init__(
        self,
        world: World,
        name: str,
        connector: Callable[[], SinkConnector],
        raw: Mapping[str, str],
        *,
        partitions: int,
        has_keys: bool = False,
        tombstones: int = 0,
        on_end: Callable[[Process], None] = lambda _: None,
        on_result: Callable[[TaskResult], None] = lambda _: None,
        group: OffsetGroup | None = None,
        bad: Bad | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(world, name, raw, on_end=on_end)
        self.letters = DeadLetters(world)
        self.log = log or Log(
            partitions,
            world.seed,
            is_transformed="records.sql" in raw,
            has_keys=has_keys,
            tombstones=tombstones,
            bad=bad,
        )
        self._outside = Outside(
            dead_letters=lambda *_: nullcontext(self.letters if bad else None),
            topic_id_check=self.log.topic_id_check,
        )
        self._on_result = on_result
        self._connector = connector
        self._group = group

    def to_delete(self, record: ConnectorRecord) -> tuple[SinkConnector, Settings]:
        connector = self._connector()
        return connector, connector.config_class.parse(record.config)

    def opened(self, raw: Mapping[str, str]) -> OpenedSink:
        connector = self._connector()
        return OpenedSink(connector, connector.config_class.parse(raw))

    def group_of(self, record: ConnectorRecord) -> OffsetGroup | None:
        return self._group

    def driver(
        self, raw: Mapping[str, str], environment: Environment, launcher: SimulatedLauncher
    ) -> ConnectorDriver:
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
        result = run_attempt(
            GenerationSpec("simulated:", "simulated", self.name, plan.generation),
            self.store(),
            task,
            partial(self.log.reading, self.world),
            clock=self.world,
            watch=self._watch,
            outside=self._outside,
        )
        self._on_result(result)
        return result

    @contextmanager
    def _watch(self, watch: ClosingWatch, interval: float) -> Iterator[Callable[[], ClosingRequest | None]]:
        watch.check()
        next_look = self.world.now() + interval

        def request() -> ClosingRequest | None:
            nonlocal next_look
            if self.world.now() >= next_look:
                watch.check_or_log()
                next_look = self.world.now() + interval
            return watch.request()

        yield request
