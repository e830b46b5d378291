"""Sinks for the engine's tests: simple ones, whose methods can be made to fail."""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from sinksdk import (
    OffsetAndMetadata,
    SinkRecord,
    SinkRecords,
    SinkTask,
    SinkTaskContext,
    Token,
    TopicPartition,
)
from sinksdk.testing import SinkTaskHarness

P0 = TopicPartition("flights", 0)
P1 = TopicPartition("flights", 1)
P2 = TopicPartition("flights", 2)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def offsets_of(records: SinkRecords) -> list[int]:
    offsets: list[int] = records.arrow.column("offset").to_pylist()
    return offsets


def rows(partition: TopicPartition, *offsets: int) -> SinkRecords:
    return SinkRecords.of(
        partition, [SinkRecord(*partition, offset=offset, value=b"%d" % offset) for offset in offsets]
    )


class Sink(SinkTask):
    """Makes records durable in ``put``. ``faults[method]`` are raised one per call; None: no fault."""

    def __init__(self) -> None:
        self.faults: dict[str, deque[BaseException | None]] = defaultdict(deque)
        self.taken: dict[TopicPartition, list[int]] = defaultdict(list)

    def fault(self, method: str) -> None:
        """Raise the next planned fault of this method, if there is one."""
        error = self.faults[method].popleft() if self.faults[method] else None
        if error is not None:
            raise error

    def initialize(self, context: SinkTaskContext) -> None:
        super().initialize(context)
        self.fault("initialize")

    def start(self, config: Any) -> None:
        self.fault("start")

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.fault("open")

    def put(self, records: SinkRecords) -> None:
        self.fault("put")
        self.taken[records.partition] += offsets_of(records)

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return super().pre_commit(offsets)

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.fault("publish")

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        self.fault("discard")

    def close(self, partitions: Collection[TopicPartition]) -> None:
        self.fault("close")

    def stop(self) -> None:
        self.fault("stop")


class BufferingSink(Sink):
    """Writes files of three records; writes a shorter one only when its partition is closed."""

    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.buffered: dict[TopicPartition, list[int]] = defaultdict(list)
        self.files: list[tuple[TopicPartition, list[int]]] = []

    def put(self, records: SinkRecords) -> None:
        super().put(records)
        self.buffered[records.partition] += offsets_of(records)

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return {p: OffsetAndMetadata(after) for p in offsets if (after := self._write(p)) is not None}

    def _write(self, partition: TopicPartition) -> int | None:
        """Write the records that may be written, and return the offset after them."""
        after, least = None, 1 if self.context.is_closing() else self.size
        while len(self.buffered[partition]) >= least:
            file = self.buffered[partition][: self.size]
            del self.buffered[partition][: self.size]
            self.files.append((partition, file))
            after = file[-1] + 1
        return after

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.buffered.pop(partition, None)
        super().close(partitions)


@dataclass
class World:
    """The destination of a two-phase sink, which survives a crash of the sink."""

    begun: dict[str, tuple[TopicPartition, list[int]]] = field(default_factory=dict)
    visible: list[str] = field(default_factory=list)
    undone: list[str] = field(default_factory=list)

    def offsets(self, partition: TopicPartition) -> list[int]:
        """Return the offsets of a partition that readers see, in the order in which they became visible."""
        return [
            offset
            for token in self.visible
            if self.begun[token][0] == partition
            for offset in self.begun[token][1]
        ]


class TwoPhaseSink(Sink):
    """Stores a token for each file before its first record, and publishes the file after its commit."""

    def __init__(self, world: World | None = None) -> None:
        super().__init__()
        self.world = world or World()
        self.files: dict[TopicPartition, tuple[Token, list[int]]] = {}

    def put(self, records: SinkRecords) -> None:
        super().put(records)
        partition = records.partition
        if partition not in self.files:
            token = Token(f"upload-{len(self.world.begun)}", {"first": records.first_offset})
            self.files[partition] = (token, [])
            self.world.begun[token.id] = (partition, self.files[partition][1])
            self.context.prepared({partition: [token]})
        self.files[partition][1].extend(offsets_of(records))

    def pre_commit(self, offsets: Offsets) -> Offsets:
        self.fault("pre_commit")
        return {p: self.finished(p) for p in offsets if p in self.files}

    def finished(self, partition: TopicPartition) -> OffsetAndMetadata:
        token, content = self.files.pop(partition)
        return OffsetAndMetadata(content[-1] + 1, publish=[token])

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().publish(partition, tokens)
        self.world.visible += [token.id for token in tokens if token.id not in self.world.visible]

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().discard(partition, tokens)
        self.world.undone += [token.id for token in tokens]

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.files.pop(partition, None)
        super().close(partitions)


class Letters:
    """Dead letters in memory; if ``automatic`` is false, the test completes the ``futures``."""

    def __init__(self, *, automatic: bool = True) -> None:
        self.automatic = automatic
        self.records: list[SinkRecord] = []
        self.futures: list[Future[None]] = []

    def send(self, record: SinkRecord) -> Future[None]:
        future: Future[None] = Future()
        if self.automatic:
            future.set_result(None)
        self.records.append(record)
        self.futures.append(future)
        return future


def opened(*partitions: object) -> tuple[SinkTaskHarness, World]:
    """Return a started two-phase sink, and its destination."""
    world = World()
    harness = SinkTaskHarness(functools.partial(TwoPhaseSink, world))
    harness.start()
    harness.assign(*partitions or (P0,))
    return harness, world


def ids(tokens: object) -> list[str]:
    return [token.id for token in tokens]
