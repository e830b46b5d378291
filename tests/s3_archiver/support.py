"""Shared by the archiver's tests: configurations, records, a task in the harness, and readers of its files."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import fastavro
import numpy as np
import pyarrow as pa

from sinksdk import SinkRecord, SinkRecords, TopicPartition
from sinksdk.compatibility import Meaning
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.files.file import Grain
from sinksdk.connectors.s3_archiver.partitioners.folders import Folders, Split
from sinksdk.connectors.s3_archiver.s3.requests import Beside, Together, one_by_one
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.engine import EngineOptions
from sinksdk.engine.commits import DeadLetters
from sinksdk.testing import SinkTaskHarness
from tests.s3_archiver.beside import at_once
from tests.s3_archiver.fake_s3 import FakeS3

TP = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)

# A few records fill a part.
FINE = Grain(rows=1, block_bytes=64)

MINIMAL = {"name": "archive", "topics": "orders", "s3.bucket.name": "bucket", "flush.size": "100"}


def config(
    keys: Mapping[str, str] | None = None, *, part_size: int | None = None, **fields: Any
) -> S3ArchiverConfig:
    """Parse a configuration of dotted keys, or of keywords with ``_`` for each dot.

    ``part_size`` may be smaller than S3 allows, so that tests stay small.
    """
    dotted = {name.replace("_", "."): value for name, value in fields.items()}
    raw = {**MINIMAL, **(keys or {}), **dotted}
    # An unknown key has no effect: a misspelt one would leave the test without its setting.
    unknown = [key for key, verdict in S3ArchiverConfig.judge(raw) if verdict.meaning is Meaning.UNKNOWN]
    assert not unknown, f"the archiver has no key {', '.join(unknown)}"
    parsed = S3ArchiverConfig.parse(raw)
    return parsed if part_size is None else parsed.model_copy(update={"s3_part_size": part_size})


def records(partition: TopicPartition = TP, count: int = 1, *, first: int = 0, size: int = 10) -> SinkRecords:
    """Return ``count`` records with values of ``size`` bytes that say their offset."""
    return SinkRecords.of(
        partition,
        [
            SinkRecord(*partition, offset=offset, key=b"k", value=b"%0*d" % (size, offset), timestamp=1)
            for offset in range(first, first + count)
        ],
    )


class Turns(Folders):
    """Folders that take turns; timestamps are offsets in seconds.

    Args:
        folders: how many.
        in_a_row: how many successive records go to one.
    """

    def __init__(self, folders: int = 2, in_a_row: int = 1) -> None:
        self._folders = folders
        self._in_a_row = in_a_row

    def split(self, partition: TopicPartition, batch: pa.RecordBatch, now: float) -> Split:
        """See :class:`~sinksdk.connectors.s3_archiver.partitioners.folders.Folders`."""
        offsets = np.asarray(batch.column("offset"))
        codes = (offsets // self._in_a_row % self._folders).astype(np.int32)
        paths = [f"partition={partition.partition}/turn={turn}" for turn in range(self._folders)]
        return Split(paths, codes, offsets * 1_000)


class ManualClock:
    # The clock starts at a whole hour; sleeping moves it.
    def __init__(self) -> None:
        self.now = 1_700_002_800.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass
class Bench:
    harness: SinkTaskHarness
    s3: FakeS3
    clock: ManualClock

    def put(self, count: int, partition: TopicPartition = TP, *, size: int = 10) -> None:
        first = self.harness.position(partition)
        self.harness.deliver(partition, records(partition, count, first=first, size=size))

    def offsets(self, partition: TopicPartition = TP) -> list[int]:
        return [row["offset"] for row in self.rows(partition)]

    def rows(self, partition: TopicPartition = TP) -> list[dict[str, Any]]:
        folder = f"topics/{partition.topic}/partition={partition.partition}/"
        return [row for key in self.visible() if key.startswith(folder) for row in read(self.s3.data(key))]

    def visible(self) -> list[str]:
        return self.s3.visible()

    def committed(self, partition: TopicPartition = TP) -> int | None:
        found = self.harness.committed.get(partition)
        return found.offset if found else None


def bench(
    *partitions: TopicPartition,
    s3: FakeS3 | None = None,
    settings: S3ArchiverConfig | None = None,
    beside: Beside = at_once,
    together: Together = one_by_one,
    grouping: Mapping[str, Any] | None = None,
    options: EngineOptions | None = None,
    dead_letters: DeadLetters | None = None,
    **fields: Any,
) -> Bench:
    """Start a task with these partitions open (:data:`TP` by default).

    Args:
        grouping: further arguments of the task.
        options: of the engine; those of the configuration by default.
        dead_letters: where bad records go.
    """
    s3, clock = s3 or FakeS3(), ManualClock()
    harness = SinkTaskHarness(
        lambda: S3ArchiverTask(
            connect=lambda _config, _endpoint=None: s3,
            clock=clock,
            sleep=clock.sleep,
            beside=beside,
            together=together,
            **{"grain": FINE, **(grouping or {})},
        ),
        settings or config(**fields),
        options=options,
        dead_letters=dead_letters,
    )
    harness.start()
    harness.assign(*(partitions or (TP,)))
    return Bench(harness, s3, clock)


def read(data: bytes) -> Sequence[dict[str, Any]]:
    return cast("Sequence[dict[str, Any]]", list(fastavro.reader(io.BytesIO(data))))


def header(data: bytes) -> dict[str, str]:
    return dict(fastavro.reader(io.BytesIO(data)).metadata)
