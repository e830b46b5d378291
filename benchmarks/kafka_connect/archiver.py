"""Run sinksdk's side: ``python -m benchmarks.kafka_connect.archiver BOOTSTRAP ENDPOINT``.

The process reads orders from its standard input and responds with a line of JSON each.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import urlsplit

from benchmarks.kafka_connect.connectors import FLUSH_SIZE, TASKS
from benchmarks.kafka_connect.rows import Parts
from benchmarks.kafka_connect.side import Run
from benchmarks.null_s3 import NullS3
from sinksdk.control.progress import Listener
from sinksdk.model.status import PartitionStatus
from sinksdk.offsets import OffsetRange, TopicPartition
from sinksdk.records import SinkRecords

if TYPE_CHECKING:
    from pyspark import SparkContext

    from benchmarks.kafka_connect.topics import Topic
    from sinksdk.runtime.driver import ConnectorDriver
    from sinksdk.store.records import GenerationPlan

_TURNS: Final = 5  # of which the fastest counts


class Archiver:
    """The process of sinksdk's side."""

    name = "sinksdk"

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        # The JVM and Python's workers are children of the driver.
        return self._process.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        return self.order(
            {"do": "archive", "topic": topic.name, "codec": codec, "rebalance_at": rebalance_at}
        )

    def parts(self, topic: Topic, codec: str) -> Parts:
        self._tell({"do": "parts", "topic": topic.name, "codec": codec})
        return Parts(**self.answer())

    def order(self, order: Mapping[str, object]) -> Run:
        self._tell(order)
        return Run(**self.answer())

    def _tell(self, order: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the archiver has ended with {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found


class Floor:
    """The same process, only reading: into Arrow batches (``read``), or counting in C (``count``)."""

    def __init__(self, archiver: Archiver, do: str) -> None:
        self._archiver = archiver
        self.name = do

    @property
    def pid(self) -> int:
        return self._archiver.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        assert rebalance_at is None
        return self._archiver.order({"do": self.name, "topic": topic.name, "codec": codec})


@contextmanager
def archiver(bootstrap: str, s3: NullS3) -> Iterator[Archiver]:
    environment = {**os.environ, "AWS_CA_BUNDLE": str(s3.certificate)} if s3.certificate else None
    command = [sys.executable, "-m", "benchmarks.kafka_connect.archiver", bootstrap, s3.url]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            ready = Archiver(process)
            ready.answer()
            yield ready
        finally:
            assert process.stdin is not None
            process.stdin.close()  # which ends it
            process.wait(60)


class _RebalanceOnce(Listener):
    def __init__(self, at: int | None) -> None:
        self._at = at
        self.driver: ConnectorDriver | None = None
        # Seconds since the epoch at which the first tasks were started.
        self.began = 0.0

    @property
    def is_done(self) -> bool:
        return self._at is None

    def planned(self, plan: GenerationPlan) -> None:  # noqa: ARG002 - whatever it is
        self.began = self.began or time.time()

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        if self._at is not None and self.driver and sum(view.records for view in partitions) >= self._at:
            self._at = None
            self.driver.rebalance()


Ranges: TypeAlias = Mapping[TopicPartition, OffsetRange]


def _read(spark: SparkContext, bootstrap: str, order: Mapping[str, Any]) -> Run:
    from sinksdk.connectors.s3_archiver import S3ArchiverConnector
    from sinksdk.topics.kafka import KafkaClient
    from sinksdk.topics.kafka.reader import KafkaReader

    reader, columns = KafkaReader(KafkaClient(bootstrap)), S3ArchiverConnector().columns(None)

    def read(ranges: Ranges) -> int:
        found = reader.read(ranges, columns, {})
        return sum(len(batch) for batch in found if isinstance(batch, SinkRecords))

    return _in_tasks(spark, bootstrap, order, read)


def _count(spark: SparkContext, bootstrap: str, order: Mapping[str, Any]) -> Run:
    # Reading cannot cost less than this.
    from sinksdk.topics.kafka import KafkaClient
    from sinksdk.topics.kafka.consumer import Consumer
    from sinksdk.topics.kafka.reader import PROPERTIES

    properties = {**PROPERTIES, **KafkaClient(bootstrap).librdkafka({})}

    def count(ranges: Ranges) -> int:
        with Consumer(properties) as consumer:
            consumer.add({partition: offsets.start for partition, offsets in ranges.items()})
            counted = 0
            for partition, offsets in ranges.items():
                filled = None
                while filled is None or not filled.is_end:
                    filled = consumer.fill(
                        partition, timeout=0.1, end=offsets.end, max_rows=8192, max_bytes=2**30, columns=()
                    )
                    counted += filled.batch.num_rows if filled.batch else 0
                consumer.remove([partition])
            return counted

    return _in_tasks(spark, bootstrap, order, count)


def _in_tasks(
    spark: SparkContext, bootstrap: str, order: Mapping[str, Any], read: Callable[[Ranges], int]
) -> Run:
    from sinksdk.spark.generation_job import run_tasks
    from sinksdk.topics import Subscription
    from sinksdk.topics.kafka import KafkaClient, KafkaSource

    began = time.time()
    held = KafkaSource(KafkaClient(bootstrap)).partitions(Subscription((order["topic"],)))
    tasks = [dict(list(held.items())[number::TASKS]) for number in range(TASKS)]

    found = sum(run_tasks(spark, TASKS, lambda task: read(tasks[task])))
    seconds, there = time.time() - began, sum(found.end - found.start for found in held.values())
    assert found == there, f"{found:,} of {there:,} records were read"
    return Run(seconds, found)


def _parts(bootstrap: str, endpoint: str, order: Mapping[str, Any]) -> Parts:
    from sinksdk.connectors.s3_archiver import S3ArchiverConnector
    from sinksdk.connectors.s3_archiver.formats.codecs import codec
    from sinksdk.connectors.s3_archiver.formats.container import BLOCK_BYTES
    from sinksdk.connectors.s3_archiver.formats.encoder import RecordEncoder
    from sinksdk.topics.kafka import KafkaClient
    from sinksdk.topics.kafka.reader import KafkaReader

    partition, sample = TopicPartition(order["topic"], 0), OffsetRange(0, FLUSH_SIZE)
    reader, columns = KafkaReader(KafkaClient(bootstrap)), S3ArchiverConnector().columns(None)
    found = reader.read({partition: sample}, columns, {})
    batches = [one.arrow for one in found if isinstance(one, SinkRecords)]
    compress, encoder = codec(order["codec"]).compress, RecordEncoder(partition)
    address, trusted = urlsplit(endpoint), ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
    s3 = http.client.HTTPSConnection(str(address.hostname), address.port, context=trusted)
    s3.connect()
    took = dict.fromkeys(("encoding", "codec", "sending"), math.inf)
    for _ in range(_TURNS):
        clock = [time.process_time()]
        encoded = [encoder.encode(batch).payload for batch in batches]
        clock.append(time.process_time())
        blocks = [
            compress(rows[at : at + BLOCK_BYTES])
            for rows in encoded
            for at in range(0, len(rows), BLOCK_BYTES)
        ]
        clock.append(time.process_time())
        s3.request("PUT", "/bucket/parts", b"".join(blocks))
        s3.getresponse().read()
        clock.append(time.process_time())
        for (name, least), began, ended in zip(list(took.items()), clock, clock[1:], strict=False):
            took[name] = min(least, (ended - began) / FLUSH_SIZE * 1e6)
    return Parts(**took)


def _archive(spark: SparkContext, bootstrap: str, endpoint: str, order: Mapping[str, Any]) -> Run:
    from benchmarks.generation import KeepResults
    from sinksdk.connectors.s3_archiver import S3ArchiverConnector
    from sinksdk.runtime.driver import ConnectorDriver
    from sinksdk.runtime.environment import Environment
    from sinksdk.spark.generation_job import SparkLauncher
    from sinksdk.store import identify, open_store
    from sinksdk.topics.kafka import ConsumerGroup, KafkaClient, KafkaSource
    from sinksdk.worker.generation_spec import GenerationSpec

    name = f"archive-{time.time_ns()}"  # a new store is another owner, and needs another folder
    raw = {
        "name": name,
        "connector.class": "s3-archiver",
        "topics": order["topic"],
        "tasks.max": str(TASKS),
        "s3.bucket.name": "bucket",
        "store.url": endpoint,
        "aws.access.key.id": "key",
        "aws.secret.access.key": "secret",
        "flush.size": str(FLUSH_SIZE),
        "avro.codec": order["codec"],
        "topics.dir": name,
        **order.get("keys", {}),
    }
    connector, source = S3ArchiverConnector(), KafkaSource(KafkaClient(bootstrap))
    config = connector.config_class.parse(raw)
    with tempfile.TemporaryDirectory(prefix="sinksdk-store-") as folder:
        url = f"sqlite:///{Path(folder)}/store.sqlite"
        store = open_store(url, create=True)
        spec = GenerationSpec(url, identify(store), name, 0)
        launcher = KeepResults(SparkLauncher(spark, source, connector.columns(config), spec))
        rebalance = _RebalanceOnce(order["rebalance_at"])
        driver = ConnectorDriver(
            Environment(store), source=source, connector=connector, config=config, raw=raw, launcher=launcher,
            listener=rebalance, group=ConsumerGroup(source.cluster, f"connect-{name}"),
        )  # fmt: skip
        rebalance.driver = driver
        driver.run(until_caught_up=True)
        seconds = time.time() - rebalance.began
        store.close()
    assert rebalance.is_done, "the topic was archived before a rebalance could be asked for"
    read = sum(outcome.records for result in launcher.all_results for outcome in result.outcomes)
    return Run(seconds, read)


def _serve(bootstrap: str, endpoint: str) -> None:
    from sinksdk.spark.context import start_spark

    spark = start_spark("peer", "local[2]")
    print("{}", flush=True)  # ready
    orders: dict[str, Callable[[Mapping[str, Any]], Run | Parts]] = {
        "archive": partial(_archive, spark, bootstrap, endpoint),
        "read": partial(_read, spark, bootstrap),
        "count": partial(_count, spark, bootstrap),
        "parts": partial(_parts, bootstrap, endpoint),
    }
    try:
        for line in sys.stdin:
            order = json.loads(line)
            print(json.dumps(asdict(orders[order["do"]](order))), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
