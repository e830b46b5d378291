"""Measure the delay from record to commit in one server with ill or busy connectors.

Three healthy connectors archive small batches on ``local[2]``: alone, next to two whose S3 does not respond,
and next to one that reads two million records. ``python -m benchmarks.isolation``
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from benchmarks.null_s3 import NullS3, null_s3
from benchmarks.table import Row, show
from sinksdk import TopicPartition
from sinksdk.store import Store, open_store, read_commits
from sinksdk.topics.directory import write_records
from tests.integration.served import Server, serving

HEALTHY: Final = ("well-0", "well-1", "well-2")
ILL: Final = ("ill-0", "ill-1")
# Records of one file of the healthy connectors: each write is one batch.
BATCH: Final = 100

_PAUSE: Final = 0.5  # seconds between a commit and the next write
_BEGIN: Final = 3.0  # seconds until the tasks that will hang have started
_LOOK: Final = 0.05  # seconds
_PATIENCE: Final = 180.0  # seconds


@dataclass(frozen=True)
class Site:
    """A server with its store, topics and two S3 endpoints, one of which may hang."""

    folder: Path
    # The store is opened once: reading commits must not add to the measured time.
    store: Store
    server: Server
    well: NullS3
    ill: NullS3

    def produce(self, topic: str, first: int, records: int, *, partition: int = 0, size: int = 100) -> None:
        offsets = np.arange(first, first + records)
        value = pa.array([b"x" * size], pa.binary())
        table = pa.table(
            {
                "key": pa.nulls(records, pa.binary()),
                "value": value.take(pa.array(np.zeros(records, np.int64))),
                "offset": offsets,
                "timestamp": pa.array(1_700_000_000_000 + offsets, pa.timestamp("ms", tz="UTC")),
            }
        )
        write_records(self.folder / "topics", TopicPartition(topic, partition), table)

    def create(self, name: str, s3: NullS3, flush_size: int, **more: Any) -> None:
        config = {
            "connector.class": "s3-archiver",
            "topics": name,
            "store.url": s3.url,
            "s3.region": "eu-central-1",
            "s3.bucket.name": "bucket",
            "s3.path.style.access.enabled": "true",
            "aws.access.key.id": "key",
            "aws.secret.access.key": "secret",
            "flush.size": flush_size,
            "tasks.max": 1,
        }
        body = {"name": name, "config": config | more}
        self.server.ask("POST", "/connectors", 201, json=body)

    def committed(self, name: str) -> int:
        return sum(entry.offset for entry in read_commits(self.store, name).committed.values())

    def until(self, condition: Callable[[], bool], patience: float = _PATIENCE) -> float:
        began = time.monotonic()
        while not condition():
            if time.monotonic() > began + patience:
                raise TimeoutError(self.server.log.read_text()[-3_000:])
            time.sleep(_LOOK)
        return time.monotonic() - began


@contextmanager
def site(*options: str, warm: float = 10.0) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="sinksdk-bench-", ignore_cleanup_errors=True) as temporary,
        null_s3(tls=False) as well,
        null_s3(tls=False) as ill,
    ):
        folder = Path(temporary)
        (folder / "topics").mkdir()
        source = ["--topic-directory", str(folder / "topics")]
        os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
        with serving(folder, source, f"sqlite:///{folder}/store.sqlite", *options) as server:
            made = Site(folder, open_store(f"sqlite:///{folder}/store.sqlite"), server, well, ill)
            for name in HEALTHY:
                made.produce(name, 0, BATCH)
                made.create(name, well, BATCH)
            made.until(lambda: all(made.committed(name) == BATCH for name in HEALTHY))
            latencies(made, warm)
            yield made


def latencies(
    here: Site,
    seconds: float,
    patience: float = _PATIENCE,
    *,
    is_over: Callable[[], bool] = lambda: False,
) -> list[float]:
    # Each write is awaited: the next call would write an unread rest again, out of order. A write that takes
    # longer than ``patience`` counts as that long, and is its connector's last.
    end = time.monotonic() + seconds

    def run(name: str) -> list[float]:
        found, offset = list[float](), here.committed(name)
        while time.monotonic() < end and not is_over():
            began = time.monotonic()
            here.produce(name, offset, BATCH)
            offset += BATCH
            while here.committed(name) < offset:
                if time.monotonic() > began + patience:
                    return [*found, patience]
                time.sleep(_LOOK)
            found.append(time.monotonic() - began)
            time.sleep(_PAUSE)
        return found

    with ThreadPoolExecutor(len(HEALTHY)) as threads:
        return [seconds for found in threads.map(run, HEALTHY) for seconds in found]


def hang(here: Site, *, tasks: int = 2) -> None:
    for name in ILL:
        for partition in range(tasks):
            here.produce(name, 0, BATCH, partition=partition)
        here.create(name, here.ill, BATCH, **{"tasks.max": tasks})
    here.until(lambda: all(here.committed(name) == tasks * BATCH for name in ILL))
    here.ill.hang()
    for name in ILL:
        for partition in range(tasks):
            here.produce(name, BATCH, BATCH, partition=partition)


def backfill(here: Site, records: int, *, tasks: int = 2) -> None:
    for partition in range(tasks):
        here.produce("behind", 0, records // tasks, partition=partition, size=200)
    here.create("behind", here.well, 100_000, **{"tasks.max": tasks})
    here.until(lambda: here.server.state("behind") == "RUNNING")


def measure(seconds: float = 20.0, backlog: int = 2_000_000) -> list[Row]:
    with site() as here:
        alone = latencies(here, seconds)
        hang(here)
        latencies(here, _BEGIN)
        rows = [_row("alone", alone, alone)]
        rows.append(_row("beside two whose S3 hangs", latencies(here, seconds), alone))
    with site() as here:
        alone = latencies(here, seconds)
        backfill(here, backlog)
        began = time.monotonic()
        beside = latencies(here, _PATIENCE, is_over=lambda: here.committed("behind") >= backlog)
        rows.append(_row(f"beside a backfill of {backlog:,} records", beside, alone))
        print(f"the backlog was read in {time.monotonic() - began:.0f} s")
    return rows


def _row(what: str, found: Sequence[float], alone: Sequence[float]) -> Row:
    median = statistics.median(found)
    return Row.ratio(
        f"isolation: three healthy connectors, record to commit, {what}",
        f"{median:.2f} s (longest {max(found):.1f} s, {len(found)} writes)",
        median / statistics.median(alone),
        most=None if found is alone else 2.0,
    )


if __name__ == "__main__":
    show(measure())
