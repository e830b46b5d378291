"""Kafka Connect plays the scene: a task fails, its consumer leaves the group, and the group rebalances."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.kafka_connect import connectors
from benchmarks.kafka_connect.kip275.scene import (
    FAST,
    RATE,
    RECORDS,
    REFUSED,
    SLOW_FROM,
    TASKS,
    Loss,
    lives,
    losses,
)
from benchmarks.kafka_connect.topics import PARTITIONS, Cluster, Topic, committed, offsets
from benchmarks.kafka_connect.worker import Worker
from benchmarks.null_s3 import NullS3

_NAME = "kip275"
_PATIENCE = 120.0  # seconds for each step of the scene


def play(worker: Worker, cluster: Cluster, topic: Topic, s3: NullS3, journal: Path) -> dict[int, Loss]:
    """Play it to the end, with everything archived and no task failed; what each partition lost.

    S3 is well again as soon as the task has failed, or whoever gets its partition would fail as well. The
    failed task is restarted once no file is open any more: earlier, that would be a further rebalance.
    """
    group = cluster.group(f"connect-{_NAME}")
    s3.refuse(REFUSED)
    worker.start(_NAME, _config(topic, s3, journal))
    _await(worker, lambda: bool(worker.failed(_NAME)))
    s3.heal()
    _await(worker, lambda: sum(len(opened) > 1 for opened in lives(journal).values()) == PARTITIONS)
    after = offsets(group, topic)
    _await(worker, lambda: committed(group, topic) == topic.records)
    found = losses(lives(journal), after)
    (failed,) = worker.failed(_NAME)
    worker.restart_task(_NAME, failed)
    _await(worker, lambda: not worker.failed(_NAME))
    worker.delete(_NAME)
    return found


def _config(topic: Topic, s3: NullS3, journal: Path) -> dict[str, str]:
    return {
        **connectors.lean(_NAME, topic.name, "zstandard", s3.url),
        "connector.class": "sinksdk.benchmarks.PacedS3Sink",
        "tasks.max": str(TASKS),
        "flush.size": str(RECORDS),
        "journal": str(journal),
        "pace.fast.partition": str(FAST),
        "pace.slow.from": str(SLOW_FROM),
        "pace.records.per.second": str(RATE),
    }


def _await(worker: Worker, is_done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while not is_done():
        if time.monotonic() > deadline:
            raise TimeoutError(worker.log.read_text()[-3000:])
        time.sleep(0.05)
