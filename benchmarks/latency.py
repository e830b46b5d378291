"""Measure how soon a record of Kafka becomes visible: ``python -m benchmarks.latency``.

``flush.size`` is 1. Cold: from the command until the few records of a topic are visible. Warm: one record at
a time, at random moments, from its production until its object is visible.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.kafka_connect.processes import PeakMemory, cpu_seconds
from benchmarks.null_s3 import NullS3, null_s3
from benchmarks.table import Row, show
from tests.kafka.broker import serving

PARTITIONS: Final = 4
RECORDS: Final = 100
_WARMING: Final = 10  # records before those that count
_LOOK: Final = 0.005  # seconds
_PATIENCE: Final = 60.0  # seconds
_LONGEST_PAUSE: Final = 1.0  # seconds: the driver polls more often


class Site:
    """A topic, and the S3 endpoint that its records reach."""

    def __init__(self, bootstrap: str, s3: NullS3) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._s3 = s3
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result()

    def produce(self, partition: int) -> None:
        self._producer.produce("t", b"value", b"key", partition)
        assert self._producer.flush(10) == 0

    def await_objects(self, count: int) -> None:
        give_up = time.monotonic() + _PATIENCE
        while count > 0:
            assert time.monotonic() < give_up, f"{count} objects have not appeared"
            time.sleep(_LOOK)
            count -= len(self._s3.objects())


@contextmanager
def running(folder: Path, bootstrap: str, s3: NullS3) -> Iterator[subprocess.Popen[bytes]]:
    config = {
        "name": "soon",
        "connector.class": "s3-archiver",
        "topics": "t",
        "tasks.max": "2",
        "s3.bucket.name": "bucket",
        "store.url": s3.url,
        "aws.access.key.id": "key",
        "aws.secret.access.key": "secret",
        "flush.size": "1",
    }
    (folder / "soon.json").write_text(json.dumps(config))
    command: list[Any] = [
        sys.executable,
        "-m",
        "sinksdk",
        "run",
        folder / "soon.json",
        "--master",
        "local[2]",
    ]
    options = ["--bootstrap-servers", bootstrap, "--store", f"sqlite:///{folder}/store.sqlite"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen([*command, *options], stdout=log, stderr=log) as process,
    ):
        try:
            yield process
        finally:
            process.terminate()
            process.wait(60)


def measure() -> list[Row]:
    with (
        serving() as broker,
        null_s3(tls=False) as s3,
        tempfile.TemporaryDirectory(prefix="sinksdk-bench-") as folder,
    ):
        site = Site(broker.bootstrap, s3)
        for partition in range(PARTITIONS):
            site.produce(partition)
        began = time.perf_counter()
        with running(Path(folder), broker.bootstrap, s3) as process, PeakMemory(process.pid) as memory:
            site.await_objects(PARTITIONS)
            first, cpu = time.perf_counter() - began, sum(cpu_seconds(process.pid).values())
            taken = list(latencies(site))[_WARMING:]
        return [
            Row.limit(
                "cold: from the command until a small topic is visible",
                f"{first:.1f} s, {cpu:.1f} CPU s",
                is_met=first <= 8,
                target="8 s",
            ),
            Row("memory of all its processes, peak", f"{memory.bytes / 1e6:,.0f} MB"),
            *_spread(sorted(taken)),
        ]


def latencies(site: Site) -> Iterator[float]:
    dice = random.Random(1)  # noqa: S311 - the same moments in every run
    for _ in range(_WARMING + RECORDS):
        time.sleep(dice.uniform(0, _LONGEST_PAUSE))
        began = time.perf_counter()
        site.produce(dice.randrange(PARTITIONS))
        site.await_objects(1)
        yield time.perf_counter() - began


def _spread(taken: list[float]) -> list[Row]:
    figures = {"median": (statistics.median(taken), 0.7), "99 of 100": (taken[int(len(taken) * 0.99)], 1.5)}
    return [
        Row.limit(
            f"warm: from a record to its object, {what}",
            f"{seconds:.2f} s",
            is_met=seconds <= target,
            target=f"{target:g} s",
        )
        for what, (seconds, target) in figures.items()
    ]


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).parents[1]))
    show(measure())
