"""Let sinksdk play the scene: a partition fails, and the driver is asked to rebalance.

As a program (BOOTSTRAP ENDPOINT TOPIC JOURNAL) it is the driver, and prints the start offsets of the second
generation as JSON.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.kafka_connect.kip275.scene import RECORDS, REFUSED, TASKS, Loss, lives, losses
from benchmarks.kafka_connect.topics import Cluster, Topic, committed
from benchmarks.null_s3 import NullS3
from sinksdk.control.progress import Listener
from sinksdk.model.status import PartitionStatus
from sinksdk.store.records import GenerationPlan

if TYPE_CHECKING:
    from pyspark import SparkContext

    from sinksdk.runtime.driver import ConnectorDriver

_NAME = "kip275-sinksdk"
_PATIENCE = 240.0  # seconds, of which Spark takes ten to start


def play(cluster: Cluster, topic: Topic, s3: NullS3, journal: Path) -> dict[int, Loss]:
    # S3 recovers as soon as the first generation has ended, as with Kafka Connect.
    s3.refuse(REFUSED)
    here = [cluster.bootstrap, s3.url, topic.name, str(journal)]
    command = [sys.executable, "-m", "benchmarks.kafka_connect.kip275.ours", *here]
    driver = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=_PATIENCE)
    after = {int(partition): offset for partition, offset in json.loads(driver.stdout).items()}
    assert committed(cluster.group(f"connect-{_NAME}"), topic) == topic.records
    played = lives(journal)
    return losses(played, played, after)


class _Director(Listener):
    def __init__(self, s3: NullS3) -> None:
        self.driver: ConnectorDriver | None = None
        self.starts: list[dict[int, int]] = []
        self._s3 = s3
        self._has_asked = False

    def planned(self, plan: GenerationPlan) -> None:
        self.starts.append({part.partition: part.start for task in plan.tasks for part in task.ranges})

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        if not self._has_asked and self.driver and any(view.error for view in partitions):
            self._has_asked = True
            self.driver.rebalance()

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:  # noqa: ARG002 - Listener's
        self._s3.heal()


def _config(endpoint: str, topic: str, journal: str) -> dict[str, str]:
    return {
        "name": _NAME,
        "connector.class": "benchmarks.kafka_connect.kip275.paced:PacedArchiver",
        "topics": topic,
        "tasks.max": str(TASKS),
        "s3.bucket.name": "bucket",
        "store.url": endpoint,
        "aws.access.key.id": "key",
        "aws.secret.access.key": "secret",
        "flush.size": str(RECORDS),
        "avro.codec": "zstandard",
        "topics.dir": _NAME,
        "restart.backoff.ms": "10",
        "journal": journal,
    }


def _drive(spark: SparkContext, bootstrap: str, s3: NullS3, raw: Mapping[str, str]) -> dict[int, int]:
    from benchmarks.kafka_connect.kip275.paced import PacedArchiver
    from sinksdk.runtime.driver import ConnectorDriver
    from sinksdk.runtime.environment import Environment
    from sinksdk.spark.generation_job import SparkLauncher
    from sinksdk.store import identify, open_store
    from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
    from sinksdk.worker.generation_spec import GenerationSpec

    connector, source, director = PacedArchiver(), KafkaSource(KafkaClient(bootstrap)), _Director(s3)
    config = connector.config_class.parse(raw)
    with tempfile.TemporaryDirectory(prefix="sinksdk-store-") as folder:
        url = f"sqlite:///{Path(folder)}/store.sqlite"
        store = open_store(url, create=True)
        spec = GenerationSpec(url, identify(store), _NAME, 0)
        director.driver = ConnectorDriver(
            Environment(store), source=source, connector=connector, config=config, raw=raw,
            launcher=SparkLauncher(spark, source, connector.columns(config), spec), listener=director,
            group=ConsumerGroup(source.cluster, f"connect-{_NAME}"),
        )  # fmt: skip
        director.driver.run(until_caught_up=True)
        store.close()
    return director.starts[1]


def _main(bootstrap: str, endpoint: str, topic: str, journal: str) -> None:
    from sinksdk.spark.context import start_spark

    spark = start_spark(_NAME, f"local[{TASKS}]")
    try:
        starts = _drive(spark, bootstrap, NullS3(endpoint, None), _config(endpoint, topic, journal))
        print(json.dumps(starts))
    finally:
        spark.stop()


if __name__ == "__main__":
    _main(*sys.argv[1:])
