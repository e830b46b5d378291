"""Measure a generation against the floor: the same records, read by the same tasks and only counted.

The naive way is a loop over the rows that Spark reads: rows to dicts, ``fastavro.writer``, one ``put_object``
a task.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from benchmarks.null_s3 import null_s3
from benchmarks.table import Row, show
from sinksdk import OffsetRange, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.runtime.driver import ConnectorDriver
from sinksdk.runtime.environment import Environment
from sinksdk.spark.context import start_spark
from sinksdk.spark.generation_job import SparkGeneration, SparkLauncher, run_tasks
from sinksdk.spark.transform import TransformedRecords
from sinksdk.store import identify, open_store
from sinksdk.store.records import GenerationPlan
from sinksdk.topics import TopicDirectorySource
from sinksdk.topics.directory import write_records
from sinksdk.worker.generation_spec import GenerationSpec
from sinksdk.worker.task_result import TaskResult

PARTITIONS = 4
TASKS = 2
ROUNDS = 3
SHAPES = {"200 B": (200, 2_000_000), "1 KB JSON": (1_000, 700_000)}


def measure() -> list[Row]:
    table = []
    with null_s3(tls=False) as server:
        spark = start_spark("bench", "local[2]")
        try:
            for shape, (size, rows) in SHAPES.items():
                table += _rows(shape, size, rows, _seconds(spark, server.url, size, rows))
            table.append(_small(spark, server.url))
        finally:
            spark.stop()
    return table


def _seconds(spark: SparkContext, endpoint: str, size: int, rows: int) -> dict[str, list[float]]:
    # The ways take turns, so that other load hits all alike.
    with tempfile.TemporaryDirectory(prefix="sinksdk-bench-") as folder:
        write_topic(Path(folder) / "topics", size, rows)
        job = Job(spark, endpoint, Path(folder), rows)
        ways: dict[str, Callable[[], None]] = {
            "count": job.count,
            "null": lambda: job.archive("null"),
            "zstandard": lambda: job.archive("zstandard"),
            "naive null": lambda: job.naive("null"),
            "naive deflate": lambda: job.naive("deflate"),
        }
        for name in ("count", "null", "count", "null"):
            ways[name]()  # warm: class loading, the JVM's compiler, workers, file cache
        seconds: dict[str, list[float]] = {name: [] for name in ways}
        for _ in range(ROUNDS):
            for name, way in ways.items():
                start = time.perf_counter()
                way()
                seconds[name].append(time.perf_counter() - start)
    return seconds


def _rows(shape: str, size: int, rows: int, rounds: dict[str, list[float]]) -> list[Row]:
    seconds = {name: statistics.median(taken) for name, taken in rounds.items()}
    speed = {name: f"{rows / taken / 1e3:,.0f} k records/s" for name, taken in seconds.items()}

    def ratio(slow: str, fast: str) -> float:
        # A slow minute of the machine slows both sides of a round's ratio.
        return statistics.median(a / b for a, b in zip(rounds[slow], rounds[fast], strict=True))

    return [
        Row.ratio(
            f"floor: {shape}, read by tasks and only counted, against naive",
            speed["count"],
            ratio("naive null", "count"),
        ),
        Row.ratio(f"generation: {shape}, null codec, time against the floor", speed["null"],
                  ratio("null", "count")),
        Row.ratio(f"generation: {shape}, null codec, against naive", speed["null"],
                  ratio("naive null", "null"), least=8.0 if size <= 200 else 4.0),
        Row.ratio(f"generation: {shape}, zstandard, against naive deflate", speed["zstandard"],
                  ratio("naive deflate", "zstandard"), least=3.0),
    ]  # fmt: skip


def _small(spark: SparkContext, endpoint: str) -> Row:
    with tempfile.TemporaryDirectory(prefix="sinksdk-bench-") as folder:
        topics = Path(folder) / "topics"
        write_topic(topics, 200, 1, partitions=1)
        taken = []
        for _ in range(5):
            start = time.perf_counter()
            archive_once(spark, topics, endpoint, "null", tasks=1)
            taken.append(time.perf_counter() - start)
    least = statistics.median(taken)
    return Row.limit(
        "generation of one record, warm, store made anew", f"{least:.2f} s", is_met=least <= 1.0, target="1 s"
    )


class Job:
    """Reads the same rows in several ways."""

    def __init__(self, spark: SparkContext, endpoint: str, folder: Path, rows: int) -> None:
        self._spark = spark
        self._endpoint = endpoint
        self._folder = folder
        self._rows = rows
        self._source = TopicDirectorySource(str(folder / "topics"))

    def count(self) -> None:
        each = self._rows // PARTITIONS
        ranges = {TopicPartition("t", number): OffsetRange(0, each) for number in range(PARTITIONS)}
        reader, columns = self._source.reader(ranges), S3ArchiverConnector().columns(None)

        def count(task: int) -> int:
            own = {p: offsets for p, offsets in ranges.items() if p.partition % TASKS == task}
            found = reader.read(own, columns, {})
            return sum(len(each) for each in found if each is not None)

        counted = sum(run_tasks(self._spark, TASKS, count))
        assert counted == self._rows, counted

    def archive(self, codec: str) -> None:
        archive_once(self._spark, self._folder / "topics", self._endpoint, codec, tasks=TASKS)

    def naive(self, codec: str) -> None:
        endpoint = self._endpoint

        def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            import boto3
            import fastavro

            from sinksdk.connectors.s3_archiver.formats.schema import RECORD_SCHEMA

            def records() -> Iterator[dict[str, Any]]:
                for batch in batches:
                    for row in batch.to_pylist():
                        row |= {"topic": "t", "timestamp_type": 0, "headers": row["headers"] or []}
                        yield row

            body = io.BytesIO()
            fastavro.writer(body, fastavro.parse_schema(RECORD_SCHEMA), records(), codec)
            s3 = boto3.client(
                "s3",
                endpoint_url=endpoint,
                region_name="us-east-1",
                aws_access_key_id="key",
                aws_secret_access_key="secret",
            )
            s3.put_object(Bucket="bucket", Key="naive", Body=body.getvalue())
            yield pa.RecordBatch.from_pydict({"n": [body.tell()]})

        rows = (
            SparkSession(self._spark)
            .read.parquet(str(self._folder / "topics"))
            .coalesce(TASKS)
            .selectExpr(
                "partition", "offset", "unix_millis(timestamp) AS timestamp", "key", "value", "headers"
            )
        )
        rows.mapInArrow(write, "n long").collect()


def archive_once(
    spark: SparkContext,
    topics: Path,
    endpoint: str,
    codec: str,
    *,
    tasks: int,
    flush_size: int = 1_000_000,
    keys: Mapping[str, str] | None = None,
) -> list[TaskResult]:
    raw = {
        "name": "bench",
        "connector.class": "s3-archiver",
        "topics": "t",
        "tasks.max": str(tasks),
        "s3.bucket.name": "bucket",
        "store.url": endpoint,
        "aws.access.key.id": "key",
        "aws.secret.access.key": "secret",
        "flush.size": str(flush_size),
        "avro.codec": codec,
        "topics.dir": f"run-{time.time_ns()}",  # a new store is another owner
        **(keys or {}),
    }
    connector, source = S3ArchiverConnector(), TopicDirectorySource(str(topics))
    config = connector.config_class.parse(raw)
    with tempfile.TemporaryDirectory(prefix="sinksdk-store-") as folder:
        url = f"sqlite:///{folder}/store.sqlite"
        store = open_store(url, create=True)
        launcher = KeepResults(
            SparkLauncher(
                spark,
                source,
                connector.columns(config),
                GenerationSpec(url, identify(store), "bench", 0),
                TransformedRecords.of(config, spark, connector.columns(config), (), takes_bytes=False),
            )
        )
        ConnectorDriver(
            Environment(store), source=source, connector=connector, config=config, raw=raw, launcher=launcher
        ).run(until_caught_up=True)
        store.close()
    return launcher.results


class KeepResults:
    """A launcher that keeps the results of its generations."""

    def __init__(self, launcher: SparkLauncher) -> None:
        self._launcher = launcher
        self._generations: list[SparkGeneration] = []

    def launch(self, plan: GenerationPlan) -> SparkGeneration:
        self._generations.append(self._launcher.launch(plan))
        return self._generations[-1]

    @property
    def results(self) -> list[TaskResult]:
        return self._generations[-1].results()

    @property
    def all_results(self) -> list[TaskResult]:
        return [result for generation in self._generations for result in generation.results()]


def write_topic(folder: Path, size: int, rows: int, partitions: int = PARTITIONS) -> None:
    each = rows // partitions
    random = np.random.default_rng(1)
    words = np.frombuffer(
        b'{"id":%d,"name":"flight","carrier":"UA","origin":"EWR","delay":12,"note":"', np.uint8
    )
    for partition in range(partitions):
        for first in range(0, each, 250_000):
            count = min(250_000, each - first)
            if size <= 200:
                data = random.integers(0, 256, count * size, dtype=np.uint8)
            else:
                data = np.resize(words, count * size)
                data[::7] = random.integers(48, 58, len(data[::7]), dtype=np.uint8)
            offsets = pa.array(np.arange(count + 1, dtype=np.int32) * size)
            values = pa.BinaryArray.from_buffers(
                pa.binary(), count, [None, offsets.buffers()[1], pa.py_buffer(data)]
            )
            keys = pa.array([b"key-%07d" % n for n in range(count)], pa.binary())
            headers = pa.array(
                [
                    [{"key": "trace", "value": b"0123456789abcdef"}, {"key": "kind", "value": b"x"}]
                    if n % 2
                    else []
                    for n in range(count)
                ],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            )
            numbers = np.arange(first, first + count)
            table = pa.table(
                {
                    "key": keys,
                    "value": values,
                    "offset": numbers,
                    "timestamp": pa.array(1_700_000_000_000 + numbers, pa.timestamp("ms", tz="UTC")),
                    "headers": headers,
                }
            )
            write_records(folder, TopicPartition("t", partition), table)


if __name__ == "__main__":
    show(measure())
