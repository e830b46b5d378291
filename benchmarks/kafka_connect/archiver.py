"""sinksdk's side: a process with a Spark session, which archives the topics it is told to, in turn.

``python -m benchmarks.kafka_connect.archiver BOOTSTRAP ENDPOINT`` reads orders from its standard input and
answers on its standard output, a line of JSON each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from benchmarks.kafka_connect.connectors import FLUSH_SIZE, TASKS
from benchmarks.kafka_connect.side import Run
from benchmarks.null_s3 import NullS3
from sinksdk.records import SinkRecords
from sinksdk.runtime.events import PartitionView, Silent

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from benchmarks.kafka_connect.topics import Topic
    from sinksdk.runtime.driver import ConnectorDriver


class Archiver:
    """The process, as the benchmark sees it."""

    name = "sinksdk"

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """The driver; the JVM and Python's workers are below it."""
        return self._process.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        """See :class:`benchmarks.kafka_connect.side.Side`."""
        return self.order(
            {"do": "archive", "topic": topic.name, "codec": codec, "rebalance_at": rebalance_at}
        )

    def order(self, order: Mapping[str, object]) -> Run:
        """Tell it what to do, and wait until it is done."""
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        return Run(**self.answer())

    def answer(self) -> dict[str, Any]:
        """The next line it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the archiver has ended with {self._process.wait()}"
        found: dict[str, Any] = json.loads(line)
        return found


class Floor:
    """The same process, only reading: what the archiver can never cost less than.

    Args:
        archiver: the process.
    """

    name = "reading"

    def __init__(self, archiver: Archiver) -> None:
        self._archiver = archiver

    @property
    def pid(self) -> int:
        """See :class:`benchmarks.kafka_connect.side.Side`."""
        return self._archiver.pid

    def archive(self, topic: Topic, codec: str, *, rebalance_at: int | None = None) -> Run:
        """Read the topic; there is no codec, and nothing to rebalance."""
        assert rebalance_at is None
        return self._archiver.order({"do": "read", "topic": topic.name, "codec": codec})


@contextmanager
def archiver(bootstrap: str, s3: NullS3) -> Iterator[Archiver]:
    """Start the process; it ends with the block."""
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


class _RebalanceOnce(Silent):
    """Asks a driver for a rebalance once so many records have been read."""

    def __init__(self, at: int | None) -> None:
        self._at = at
        self.driver: ConnectorDriver | None = None

    @property
    def is_done(self) -> bool:
        """Whether it has asked, if it was to."""
        return self._at is None

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """See :class:`sinksdk.runtime.events.Listener`."""
        if self._at is not None and self.driver and sum(view.records for view in partitions) >= self._at:
            self._at = None
            self.driver.rebalance()


def _read(spark: SparkSession, bootstrap: str, order: Mapping[str, Any]) -> Run:
    from sinksdk.connectors.s3_archiver import S3ArchiverConnector
    from sinksdk.sources import Subscription
    from sinksdk.sources.kafka import KafkaClient, KafkaSource
    from sinksdk.spark.batches import task_number
    from sinksdk.spark.generation_job import control_frame

    began = time.time()
    source = KafkaSource(KafkaClient(bootstrap))
    held = dict(source.partitions(Subscription((order["topic"],))))
    tasks = [dict(list(held.items())[number::TASKS]) for number in range(TASKS)]
    reader, columns = source.reader(held), S3ArchiverConnector().columns(None)

    def count(rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = reader.read(tasks[task_number(rows)], columns, {})
        records = sum(len(batch) for batch in found if isinstance(batch, SinkRecords))
        yield pa.RecordBatch.from_pydict({"n": [records]})

    control_frame(spark, TASKS).mapInArrow(count, "n long").collect()
    return Run(time.time() - began, sum(found.end - found.start for found in held.values()))


def _archive(spark: SparkSession, bootstrap: str, endpoint: str, order: Mapping[str, Any]) -> Run:
    from benchmarks.generation import KeepResults
    from sinksdk.connectors.s3_archiver import S3ArchiverConnector
    from sinksdk.runtime.driver import ConnectorDriver
    from sinksdk.sources.kafka import ConsumerGroup, KafkaClient, KafkaSource
    from sinksdk.spark.generation_job import SparkLauncher
    from sinksdk.spark.generation_spec import GenerationSpec
    from sinksdk.store import identify, open_store

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
            store=store, source=source, connector=connector, config=config, raw=raw, launcher=launcher,
            listener=rebalance, group=ConsumerGroup(source.cluster, f"connect-{name}"),
        )  # fmt: skip
        rebalance.driver = driver
        began = time.time()
        driver.run(until_caught_up=True)
        seconds = time.time() - began
        store.close()
    assert rebalance.is_done, "the topic was archived before a rebalance could be asked for"
    read = sum(outcome.records for result in launcher.all_results for outcome in result.outcomes)
    return Run(seconds, read)


def _serve(bootstrap: str, endpoint: str) -> None:
    from sinksdk.spark.session import create_session

    spark = create_session("peer", "local[2]")
    print("{}", flush=True)  # ready
    try:
        for line in sys.stdin:
            order = json.loads(line)
            is_archive = order["do"] == "archive"
            run = (
                _archive(spark, bootstrap, endpoint, order) if is_archive else _read(spark, bootstrap, order)
            )
            print(json.dumps({"seconds": run.seconds, "read": run.read}), flush=True)
    finally:
        spark.stop()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
