"""Measure 200 open files of a task against one, with the same records: ``python -m benchmarks.open_files``.

The worst case, records in 200 random hours, is compared with as many files one after the other, which
isolates the cost of open files, and with a single file, which shows that of small files (three requests
each). Files of 200 hold 0.5 to 1 MB before compression: about the default bound of memory.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import resource
import statistics
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.encoding import ORDERS, ROWS, json_values, random_values, records
from benchmarks.null_s3 import NullS3, null_s3
from benchmarks.table import Row, show
from sinksdk import SinkRecords
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.testing import SinkTaskHarness

FILES: Final = 200
FLUSHES: Final = 2
MOST: Final = 1.5
HOUR: Final = 3_600_000
BEGIN: Final = 1_729_900_800_000


class Shape(NamedTuple):
    """A kind of records, and their number in the files of a flush."""

    name: str
    values: str
    flush_size: int


SHAPES: Final = (Shape("200 B", "200", 400_000), Shape("1 KB JSON", "1000", 200_000))
CODECS: Final = ("zstandard", "null")
BY_HOUR: Final = {
    "partitioner.class": "TimeBasedPartitioner",
    "path.format": "'year'=YYYY/'month'=MM/'day'=dd/'hour'=HH",
    "timestamp.extractor": "Record",
    "partition.duration.ms": str(HOUR),
    "locale": "en-US",
    "timezone": "UTC",
}


class Way(NamedTuple):
    """How the records become files.

    Args:
        open: files that are open at the same time.
        files: number of files of a flush.
    """

    name: str
    open: int
    files: int


LARGE, IN_TURN, AT_ONCE = (
    Way("one large file", 1, 1),
    Way(f"{FILES} files, one open at a time", 1, FILES),
    Way(f"{FILES} files, all open", FILES, FILES),
)
WAYS: Final = (LARGE, IN_TURN, AT_ONCE)


class Used(NamedTuple):
    """The resources of a run.

    Args:
        cpu: seconds.
        peak: bytes of the process so far.
    """

    cpu: float
    peak: int


def measure(rounds: int = 5) -> list[Row]:
    with null_s3() as endpoint:
        return [
            row for shape in SHAPES for codec in CODECS for row in _compared(endpoint, shape, codec, rounds)
        ]


def _compared(endpoint: NullS3, shape: Shape, codec: str, rounds: int) -> list[Row]:
    # The ways take turns, each in its own process: a slow minute of the machine slows all alike.
    context = multiprocessing.get_context("spawn")
    used: dict[Way, list[Used]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as stack:
        workers = {way: stack.enter_context(ProcessPoolExecutor(1, context)) for way in WAYS}
        for number in range(rounds + 1):
            for way, worker in workers.items():
                found = worker.submit(archive, endpoint, shape, codec, way).result()
                if number:  # the first round warms up
                    used[way].append(found)
                    _check(endpoint, way)
                endpoint.objects()
    rows = []
    for way, found in used.items():
        cpu = statistics.median(each.cpu for each in found) / (shape.flush_size * FLUSHES) * 1e6
        what = f"open files: {shape.name}, {codec}, {way.name}"
        measured = f"{cpu:.2f} CPU s/M, {max(each.peak for each in found) / 1e6:,.0f} MB"
        if way is AT_ONCE:
            rows.append(Row.ratio(what, measured, _ratio(used[IN_TURN], found), most=MOST))
            measured = "against one large file"
            rows.append(Row(what, measured, f"{_ratio(used[LARGE], found):.2f} x"))
        else:
            rows.append(Row(what, measured))
    return rows


def _ratio(before: Sequence[Used], after: Sequence[Used]) -> float:
    return statistics.median(b.cpu / a.cpu for a, b in zip(before, after, strict=True))


def _check(endpoint: NullS3, way: Way) -> None:
    made = endpoint.objects()
    assert len(made) == way.files * FLUSHES, f"{len(made)} objects instead of {way.files * FLUSHES}"


def archive(endpoint: NullS3, shape: Shape, codec: str, way: Way) -> Used:
    if endpoint.certificate:
        os.environ["AWS_CA_BUNDLE"] = str(endpoint.certificate)
    batches = _batches(shape)
    harness = SinkTaskHarness(S3ArchiverTask, _config(endpoint.url, shape, codec, way))
    begun = _cpu()
    harness.start()
    harness.assign(ORDERS)
    for batch in batches:
        harness.deliver(ORDERS, SinkRecords(ORDERS, batch))
        harness.advance(0)
        harness.calls.clear()
    harness.revoke(ORDERS)
    cpu = _cpu() - begun
    assert harness.committed[ORDERS].offset == len(batches) * ROWS
    return Used(cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def _config(url: str, shape: Shape, codec: str, way: Way) -> S3ArchiverConfig:
    return S3ArchiverConfig.parse(
        {
            "name": "bench",
            "topics": ORDERS.topic,
            "s3.bucket.name": "bucket",
            "store.url": url,
            "aws.access.key.id": "key",
            "aws.secret.access.key": "secret",
            "flush.size": str(shape.flush_size * way.open // way.files),
            "avro.codec": codec,
            "topics.dir": f"run-{time.time_ns()}",
            **(BY_HOUR if way.open > 1 else {}),
        }
    )


@functools.cache
def _batches(shape: Shape) -> Sequence[pa.RecordBatch]:
    # Keys, values and headers of all batches are shared; each record is in a random hour.
    size = int(shape.values)
    first = records(random_values(size) if size <= 200 else json_values(size))
    dice = np.random.default_rng(5)
    made = []
    for start in range(0, shape.flush_size * FLUSHES, ROWS):
        past = dice.integers(0, FILES, ROWS) * HOUR + dice.integers(0, HOUR, ROWS)
        columns = dict(zip(first.schema.names, first.columns, strict=True))
        columns["offset"] = pa.array(np.arange(start, start + ROWS))
        columns["timestamp"] = pa.array(BEGIN + past).cast(first.schema.field("timestamp").type)
        made.append(pa.record_batch(list(columns.values()), schema=first.schema))
    return made


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    show(measure(*map(int, sys.argv[1:])))
