"""Measure the peak memory of a task's Python worker, with files of different size."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.null_s3 import null_s3

ROUNDS = (10_000, 100_000, 1_000_000)


def peaks(
    flush_sizes: Sequence[int] = ROUNDS, *, records: int = 2_000_000, size: int = 200
) -> dict[int, int]:
    # Each ``flush.size`` has its own Spark, whose workers are new.
    with tempfile.TemporaryDirectory(prefix="sinksdk-memory-") as folder, null_s3(tls=False) as endpoint:
        command = [sys.executable, "-m", "benchmarks.memory", folder, endpoint.url, str(records), str(size)]
        found = {}
        for flush_size in flush_sizes:
            printed = subprocess.run(
                [*command, str(flush_size)], check=True, capture_output=True, text=True, timeout=500
            )
            found[flush_size] = json.loads(printed.stdout.splitlines()[-1])
        return found


def _measure(folder: Path, endpoint: str, records: int, size: int, flush_size: int) -> int:
    from benchmarks.generation import archive_once, write_topic
    from sinksdk.spark.context import start_spark

    topics = folder / "topics"
    if not topics.exists():
        write_topic(topics, size, records, partitions=1)
    spark = start_spark("memory", "local[1]", extra_conf={"spark.python.worker.reuse": "false"})
    try:
        results = archive_once(spark, topics, endpoint, "null", tasks=1, flush_size=flush_size)
    finally:
        spark.stop()
    return max(result.peak_memory for result in results)


if __name__ == "__main__":
    where, url, *numbers = sys.argv[1:]
    print(json.dumps(_measure(Path(where), url, *map(int, numbers))))
