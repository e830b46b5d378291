"""Let Kafka Connect play the scene: a task fails, its consumer leaves the group, and the group rebalances."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
from benchmarks.kafka_connect.topics import Cluster, Topic, committed, offsets
from benchmarks.kafka_connect.worker import Worker
from benchmarks.null_s3 import NullS3

_PATIENCE = 120.0  # seconds for each step of the scene


@dataclass(frozen=True)
class Connect:
    """A worker, and the systems that it archives from and to."""

    worker: Worker
    cluster: Cluster
    s3: NullS3

    def play(self, topic: Topic, journal: Path, settings: Mapping[str, str]) -> dict[int, Loss]:
        # S3 recovers as soon as the task has failed, because the next owner of its partition would fail as
        # well. The failed task is restarted once no file is open: an earlier restart would be a further
        # rebalance. The journal must be new for each scene.
        name = f"kip275-{journal.name}"
        group = self.cluster.group(f"connect-{name}")
        self.s3.refuse(REFUSED)
        self.worker.start(name, {**_config(name, topic, self.s3, journal), **settings})
        self._await(lambda: bool(self.worker.failed(name)))
        self.s3.heal()
        # Other tasks have given up their partitions before this one has a new owner.
        self._await(lambda: len(lives(journal).get(FAST, ())) > 1)
        seen, after = lives(journal), offsets(group, topic)
        self._await(lambda: committed(group, topic) == topic.records)
        found = losses(lives(journal), seen, after)
        self._restart(name)
        self.worker.delete(name)
        return found

    def _restart(self, name: str) -> None:
        (failed,) = self.worker.failed(name)
        self.worker.restart_task(name, failed)
        self._await(lambda: not self.worker.failed(name))

    def _await(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not is_done():
            if time.monotonic() > deadline:
                raise TimeoutError(self.worker.log.read_text()[-3000:])
            time.sleep(0.05)


def _config(name: str, topic: Topic, s3: NullS3, journal: Path) -> dict[str, str]:
    return {
        **connectors.lean(name, topic.name, "zstandard", s3.url),
        "connector.class": "sinksdk.benchmarks.PacedS3Sink",
        "tasks.max": str(TASKS),
        "flush.size": str(RECORDS),
        "journal": str(journal),
        "pace.fast.partition": str(FAST),
        "pace.slow.from": str(SLOW_FROM),
        "pace.records.per.second": str(RATE),
    }
