"""Measure one side archiving one topic."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.kafka_connect.processes import PeakMemory, cpu_seconds
from benchmarks.kafka_connect.side import Side
from benchmarks.kafka_connect.topics import Topic
from benchmarks.null_s3 import NullS3

_DATA = ".avro"
_NOT_DATA = "/metadata/"  # Iceberg's manifests are Avro files as well


@dataclass(frozen=True)
class Measured:
    """One topic archived by one side.

    Args:
        seconds: as :class:`benchmarks.kafka_connect.side.Run` has them.
        cpu: seconds of its processes, by program.
        peak: resident bytes of all its processes together.
        read: records passed to its tasks, counted each time.
        files: sizes of the visible data files.
    """

    records: int
    seconds: float
    cpu: Mapping[str, float]
    peak: int
    read: int
    files: Sequence[int]

    @property
    def speed(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return sum(self.cpu.values()) / self.records * 1e6

    @property
    def share_of_jvm(self) -> float:
        return self.cpu.get("java", 0.0) / sum(self.cpu.values())

    @property
    def read_twice(self) -> int:
        return self.read - self.records


def measure(side: Side, topic: Topic, codec: str, s3: NullS3, *, rebalance_at: int | None = None) -> Measured:
    s3.objects()
    before = cpu_seconds(side.pid)
    with PeakMemory(side.pid) as memory:
        run = side.archive(topic, codec, rebalance_at=rebalance_at)
    cpu = {name: used - before.get(name, 0.0) for name, used in cpu_seconds(side.pid).items()}
    files = [size for path, size in s3.objects().items() if path.endswith(_DATA) and _NOT_DATA not in path]
    return Measured(topic.records, run.seconds, cpu, memory.bytes, run.read, files)
