"""Measure Parquet files of whole records against Spark's own ``df.write.parquet`` of the same rows.

The archiver runs a whole generation to an endpoint that discards, Spark writes to the local disk, in turns. A
figure is the processor time of all their processes with the JVM. ``python -m benchmarks.parquet [ROUNDS]``
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession

from benchmarks.kafka_connect.processes import cpu_seconds
from benchmarks.null_s3 import null_s3
from benchmarks.table import Row, show

SHAPES: Final = {"200 B": (200, 1_000_000), "1 KB JSON": (1_000, 400_000)}
TASKS: Final = 2
# These rounds do not count: the JVM still compiles more than it computes.
WARMING: Final = 3
MOST: Final = 1.0
KEYS: Final = {"format.class": "ParquetFormat", "parquet.codec": "zstd", "archive.content": "record"}
COLUMNS: Final = (
    "'t' AS topic",
    "partition",
    "offset",
    "timestamp",
    "0 AS timestamp_type",
    "key",
    "value",
    "headers",
)


def measure(rounds: int = 5) -> list[Row]:
    return [row for shape in SHAPES for row in _compared(shape, rounds)]


def _compared(shape: str, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(prefix="sinksdk-bench-") as folder, null_s3(tls=False) as endpoint:
        command = [sys.executable, "-m", "benchmarks.parquet", "inside", folder, endpoint.url, shape]
        printed = subprocess.run([*command, str(rounds)], check=True, stdout=subprocess.PIPE, text=True)
    found: list[tuple[float, float]] = json.loads(printed.stdout.splitlines()[-1])
    records = SHAPES[shape][1]
    archiver, spark = (statistics.median(each) / records * 1e6 for each in zip(*found, strict=True))
    ratio = statistics.median(ours / theirs for ours, theirs in found)
    return [
        Row(f"parquet: {shape}, zstd, Spark's df.write.parquet", f"{spark:.2f} CPU s/M"),
        Row.ratio(f"parquet: {shape}, zstd, a generation", f"{archiver:.2f} CPU s/M", ratio, most=MOST),
    ]


def _inside(folder: Path, endpoint: str, shape: str, rounds: int) -> list[tuple[float, float]]:
    from benchmarks.generation import write_topic
    from sinksdk.spark.context import start_spark

    size, records = SHAPES[shape]
    write_topic(folder / "topics", size, records)
    spark = start_spark("parquet", f"local[{TASKS}]", only_schedules=False)
    try:
        found = [_round(spark, folder, endpoint, records, number) for number in range(WARMING + rounds)]
    finally:
        spark.stop()
    return found[WARMING:]


def _round(
    spark: SparkContext, folder: Path, endpoint: str, records: int, number: int
) -> tuple[float, float]:
    from benchmarks.generation import archive_once

    begun = _processor_seconds()
    results = archive_once(
        spark, folder / "topics", endpoint, "null", tasks=TASKS, flush_size=100 * records, keys=KEYS
    )
    middle = _processor_seconds()
    rows, written = _rows(spark, folder), folder / f"written-{number}"
    rows.write.option("compression", "zstd").parquet(str(written))
    ended = _processor_seconds()
    assert sum(outcome.records for result in results for outcome in result.outcomes) == records
    assert SparkSession(spark).read.parquet(str(written)).count() == records
    return middle - begun, ended - middle


def _rows(spark: SparkContext, folder: Path) -> DataFrame:
    read = SparkSession(spark).read.parquet(str(folder / "topics"))
    return read.coalesce(TASKS).selectExpr(*COLUMNS)


def _processor_seconds() -> float:
    return sum(cpu_seconds(os.getpid()).values())


if __name__ == "__main__":
    if sys.argv[1:2] == ["inside"]:
        where, url, which, turns = sys.argv[2:]
        print(json.dumps(_inside(Path(where), url, which, int(turns))))
    else:
        show(measure(*map(int, sys.argv[1:])))
