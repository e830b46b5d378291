"""Write a class-data-sharing archive of Spark's classes: ``python -m tests.helpers.spark_archive FILE``.

With the archive, which fits one Java and one set of jars, a session and a first job take 8 instead of 18 CPU
seconds, because a JVM mostly loads and verifies classes. Other JVMs ignore the archive.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from sinksdk.spark.context import start_spark
from sinksdk.spark.generation_job import run_tasks

_PATIENCE = 120.0  # seconds for the JVM to write the archive


def main(archive: Path) -> None:
    unfinished = archive.with_suffix(".unfinished")
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    )
    spark = start_spark("sinksdk-tests", "local[2]")
    run_tasks(spark, 2, lambda task: task)
    gateway: Any = spark._gateway
    spark.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends when its input ends
    gateway.proc.wait(_PATIENCE)
    unfinished.rename(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
