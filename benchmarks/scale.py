# ruff: noqa: SLF001 - a store that counts wraps the primitives of another one
"""Measure driver, plans, records and status with many partitions: ``python -m benchmarks.scale``.

The stores are real: SQLite, PostgreSQL, and S3 by moto.
"""

from __future__ import annotations

import gc
import logging
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import boto3

from benchmarks import idle
from benchmarks.table import Row, show
from sinksdk import ClosingReason, OffsetAndMetadata, TopicPartition
from sinksdk.control.info import connector_info
from sinksdk.engine.clock import SystemWallClock
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, open_store, take_over
from sinksdk.store.base import Stored
from sinksdk.store.generations import Generations
from sinksdk.store.keys import status_key
from sinksdk.store.records import Closing, GenerationPlan, TaskPlan
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import TaskResult
from sinksdk.worker.watches import ClosingWatch
from tests.helpers.memory_store import MemoryStore
from tests.integration.fault_proxy import serving_s3
from tests.runtime.running_sinks import Finished, Source, driver
from tests.store import postgres_server

PARTITIONS: Final = 10_000
TASKS: Final = 100
IN_ONE_TASK: Final = 2_000
METADATA: Final = '{"files": 12345, "records": 123456789, "end": 10000000000}'


class Counted(Store):
    """A store that counts bytes and requests of another one by key."""

    def __init__(self, inner: Store) -> None:
        super().__init__()
        self.inner = inner
        self.bytes_read: Counter[str] = Counter()
        self.bytes_written: Counter[str] = Counter()
        self.largest: Counter[str] = Counter()

    url = property(lambda self: self.inner.url)
    closing_poll = property(lambda self: self.inner.closing_poll)
    most_at_once = property(lambda self: self.inner.most_at_once)
    most_entries = property(lambda self: self.inner.most_entries)

    def clear(self) -> None:
        for counter in (self.bytes_read, self.bytes_written, self.largest):
            counter.clear()

    def _read(self, key: str) -> Stored | None:
        stored = self.inner._read(key)
        self.bytes_read[key] += len(stored.body) if stored else 0
        return stored

    def _version(self, key: str) -> str | None:
        version = self.inner._version(key)
        self.bytes_read[key] += len(version or "")
        return version

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        self.bytes_written[key] += len(stored.body)
        self.largest[key] = max(self.largest[key], len(stored.body))
        return self.inner._write(key, stored, if_version)

    def _remove(self, key: str, if_version: str) -> bool:
        return self.inner._remove(key, if_version)

    def _keys(self, prefix: str) -> Sequence[str]:
        return self.inner._keys(prefix)

    def snapshot(self, prefix: str) -> Store:
        return self.inner.snapshot(prefix)


class Committing:
    """Tasks that commit everything at once, outside of the driver's time."""

    def __init__(self, store: Store, _task_class: object) -> None:
        self._store = store
        self.seconds = self.cpu = 0.0
        self.generations = 0

    def launch(self, plan: GenerationPlan) -> Finished:
        began, cpu = time.perf_counter(), time.process_time()
        self.generations += 1
        results = [self._run(plan, number) for number in range(len(plan.tasks))]
        self.seconds += time.perf_counter() - began
        self.cpu += time.process_time() - cpu
        return Finished(results)

    def _run(self, plan: GenerationPlan, number: int) -> TaskResult:
        taken = take_over(self._store, "c", plan.generation, number)
        assert taken is not None
        ranges = plan.tasks[number].ranges
        taken.ledger.commit({r.topic_partition: OffsetAndMetadata(r.end, METADATA) for r in ranges})
        return TaskResult(number, 1, [_read(planned) for planned in ranges])


def _read(planned: RangePlan) -> PartitionOutcome:
    return PartitionOutcome(
        planned.topic_partition,
        position=planned.end,
        read_to=planned.end,
        committed=planned.end,
        records=planned.end - planned.start,
        tail=0,
    )


def topic(partitions: int) -> list[TopicPartition]:
    return [TopicPartition("orders-eu-west-1", number) for number in range(partitions)]


def tasks(partitions: int, count: int) -> list[TaskPlan]:
    ranges = [RangePlan.of(p, 0, end=100) for p in topic(partitions)]
    return [TaskPlan(ranges=tuple(ranges[number::count])) for number in range(count)]


def generation_rows(name: str, store: Counted) -> Iterator[Row]:
    source = Source(dict.fromkeys(topic(PARTITIONS), 100))
    settings: dict[str, Any] = {"topics": "orders-eu-west-1", "tasks.max": TASKS, "poll.interval.ms": 100}
    for first in (True, False):
        made, launcher, _ = driver(source, store=store, launcher_class=Committing, **settings)  # type: ignore[arg-type]  # it launches as well
        store.clear()
        began, cpu = time.perf_counter(), time.process_time()
        made.run(until_caught_up=True)
        wall = time.perf_counter() - began - launcher.seconds
        used = time.process_time() - cpu - launcher.cpu
        source.ends = dict.fromkeys(source.ends, 200)
        if not first:
            each = wall / launcher.generations
            yield Row.limit(
                f"{name}: driver's time for a generation of {PARTITIONS:,} partitions, {TASKS} tasks",
                f"{each:.1f} s ({used / launcher.generations:.1f} s CPU)",
                is_met=each <= 10,
                target="10 s",
            )
            beat = store.largest[status_key("c")]
            yield Row.limit(f"{name}: heartbeat", f"{beat:,} B", is_met=beat <= 20_000, target="20 KB")
    began = time.perf_counter()
    info = connector_info(store, "c", time.time())
    assert len(info.partitions) == PARTITIONS
    yield Row(f"{name}: status asked for", f"{time.perf_counter() - began:.1f} s")


def fencing_rows(name: str, store: Counted) -> Iterator[Row]:
    generations = Generations(store, "d")
    claim = generations.claim()
    generations.plan(claim, tasks(PARTITIONS, TASKS), 1)
    for number in range(TASKS):
        take_over(store, "d", claim.generation, number)
    watch = ClosingWatch(store, GenerationSpec(store.url, "", "d", claim.generation), SystemWallClock())
    store.clear()
    watch.check()
    looked = store.bytes_read.total()
    yield Row.limit(
        f"{name}: a task's look whether to close", f"{looked} B", is_met=looked <= 1_000, target="1 KB"
    )
    store.clear()
    generations.is_newest()
    generations.successor()
    looked = store.bytes_read.total()
    yield Row.limit(f"{name}: a driver's look", f"{looked} B", is_met=looked <= 1_000, target="1 KB")
    generations.close_running(Closing(reason=ClosingReason.REBALANCE, timeout=60.0))
    began = time.perf_counter()
    generations.claim()
    yield Row(
        f"{name}: claiming: {TASKS} tasks fenced, {store.most_at_once} at once, and merged",
        f"{time.perf_counter() - began:.2f} s",
    )


def task_rows(name: str, store: Counted) -> Iterator[Row]:
    figures = {}
    for partitions in (IN_ONE_TASK // 10, IN_ONE_TASK):
        connector = f"e{partitions}"
        ends = topic(partitions)
        for _ in range(2):
            generations = Generations(store, connector)
            claim = generations.claim()
            generations.plan(claim, tasks(partitions, 1), 1)
            taken = take_over(store, connector, claim.generation, 0)
            assert taken is not None
            taken.ledger.commit({p: OffsetAndMetadata(claim.generation, METADATA) for p in ends})
        store.clear()
        began, cpu = time.perf_counter(), time.process_time()
        for partition in ends:
            taken.ledger.prepare({partition: _tokens(partition)})
            taken.ledger.commit({partition: OffsetAndMetadata(9, METADATA, _tokens(partition))})
            taken.ledger.mark_published(partition)
        taken.ledger.flush()
        figures[partitions] = store.bytes_written.total() / partitions
        used, wall = time.process_time() - cpu, time.perf_counter() - began
    small, large = figures.values()
    yield Row.limit(
        f"{name}: written of each partition that ends, {IN_ONE_TASK:,} in one task",
        f"{large / 1e3:.1f} KB; all: {large * IN_ONE_TASK / 1e6:.0f} MB, {wall:.0f} s ({used:.0f} s CPU)",
        is_met=large <= 1.5 * small,
        target=f"1.5 x {small / 1e3:.1f} KB, that of {IN_ONE_TASK // 10}",
    )


def _tokens(partition: TopicPartition) -> tuple[Any, ...]:
    return OffsetAndMetadata(0, publish=[f"upload of {partition}"]).tokens


def memory_rows() -> Iterator[Row]:
    # Tasks commit in the driver's process, too.
    store = MemoryStore()
    generations, sizes = Generations(store, "c"), {}
    for number in range(1, 201):
        claim = generations.claim()
        generations.plan(claim, tasks(1_000, 10), 1)
        for task in range(10):
            taken = take_over(store, "c", claim.generation, task)
            assert taken is not None
            ranges = taken.plan.tasks[task].ranges
            taken.ledger.commit({r.topic_partition: OffsetAndMetadata(number) for r in ranges})
        if number in (50, 200):
            gc.collect()
            sizes[number] = _resident()
    grown = sizes[200] - sizes[50]
    yield Row.limit(
        "memory: resident after 50 and after 200 generations of 1,000 partitions",
        f"{sizes[50]:.0f} MB, {sizes[200]:.0f} MB",
        is_met=grown <= 10,
        target="10 MB more",
    )


def _resident() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 1e6


@contextmanager
def stores() -> Iterator[Iterator[tuple[str, Callable[[], Store]]]]:
    def each() -> Iterator[tuple[str, Callable[[], Store]]]:
        with tempfile.TemporaryDirectory() as folder:
            yield "SQLite", lambda: open_store(f"sqlite:///{folder}/store.db", create=True)
        with postgres_server.serving() as server:
            yield "PostgreSQL", lambda: open_store(server.url("scale"), create=True)
        os.environ |= {
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        with serving_s3() as (endpoint, _):
            boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket="scale")
            yield "S3 (moto)", lambda: open_store(f"s3://scale/state?endpoint={endpoint}", create=True)

    yield each()


def measure() -> list[Row]:
    logging.disable(logging.WARNING)
    rows = [*idle.measure(), *memory_rows()]
    with stores() as each:
        for name, make in each:
            store = Counted(make())
            for part in (generation_rows, fencing_rows, task_rows):
                rows += part(name, store)
    return rows


if __name__ == "__main__":
    show(measure())
