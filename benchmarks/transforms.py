"""Measure a filter before the archiver: ``python -m benchmarks.transforms``, run alone.

The query keeps every second record. *spark* writes its result to the noop sink, *archiver* archives a topic
with the result, *both* uses ``records.sql``, *whole* archives all records. Seconds are of all processes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow.dataset as ds
from pyspark.sql import SparkSession

from benchmarks.generation import PARTITIONS, TASKS, archive_once, write_topic
from benchmarks.kafka_connect.processes import cpu_seconds
from benchmarks.null_s3 import null_s3
from benchmarks.table import Row, show
from sinksdk import TopicPartition
from sinksdk.spark.context import start_spark
from sinksdk.topics.directory import write_records

# Bytes of a value, and records: fewer would only measure the start.
SHAPES = {"200 B": (200, 8_000_000), "1 KB JSON": (1_000, 2_500_000)}
# Larger than both: a first generation that ends in mid-file would be read again.
FLUSH_SIZE = 10_000_000
# These rounds do not count: the JVM still compiles more than it computes.
WARMING = 3
ROUNDS = 7
QUERY = "SELECT * FROM records WHERE offset % 2 = 0"


def processor_seconds() -> float:
    return sum(cpu_seconds(os.getpid()).values())


def measured(work: Callable[[], object]) -> float:
    before = processor_seconds()
    work()
    return processor_seconds() - before


def keep_half(topics: Path, kept: Path) -> None:
    for number in range(PARTITIONS):
        table = ds.dataset(topics, partitioning="hive").to_table(filter=ds.field("partition") == number)
        half = table.take([row for row, offset in enumerate(table["offset"].to_pylist()) if offset % 2 == 0])
        names = [name for name in half.column_names if name not in ("topic", "partition")]
        write_records(kept, TopicPartition("t", number), half.select(names).sort_by("offset"))


def main() -> list[Row]:
    table = []
    with null_s3(tls=False) as server:
        spark = start_spark("bench", "local[2]", only_schedules=False)
        session = SparkSession(spark)
        session.conf.set("spark.sql.files.maxPartitionBytes", "1g")
        try:
            for shape, (size, rows) in SHAPES.items():
                with tempfile.TemporaryDirectory(prefix="sinksdk-bench-") as folder:
                    topics, kept = Path(folder) / "topics", Path(folder) / "kept"
                    write_topic(topics, size, rows)
                    keep_half(topics, kept)

                    def query(topics: Path = topics) -> None:
                        session.read.parquet(str(topics)).createOrReplaceTempView("records")
                        session.sql(QUERY).write.format("noop").mode("overwrite").save()

                    def archive(topics: Path, **keys: str) -> None:
                        archive_once(
                            spark, topics, server.url, "null", tasks=TASKS, flush_size=FLUSH_SIZE, keys=keys
                        )

                    ways: dict[str, Callable[[], object]] = {
                        "spark": query,
                        "archiver": partial(archive, kept),
                        "both": partial(archive, topics, **{"records.sql": QUERY}),
                        "whole": partial(archive, topics),
                    }
                    for work in [*ways.values()] * WARMING:
                        work()
                    rounds = [{name: measured(work) for name, work in ways.items()} for _ in range(ROUNDS)]
                    each = {name: statistics.median(found[name] for found in rounds) for name in ways}
                    ratio = statistics.median(
                        found["both"] / (found["spark"] + found["archiver"]) for found in rounds
                    )
                    seconds = ", ".join(f"{name} {value / rows * 1e6:.2f}" for name, value in each.items())
                    table.append(
                        Row.ratio(
                            f"{shape}: filter on the way, null codec", f"CPU s/M: {seconds}", ratio, most=1.2
                        )
                    )
        finally:
            spark.stop()
    return table


if __name__ == "__main__":
    show(main())
