"""``python -m tests.integration.frame_query FOLDER OPTIONS [CONF]``: a program that writes a stream of files.

FOLDER has the files in ``input`` and gets the checkpoint; OPTIONS and CONF (Spark's settings) are JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


def read_stream(session: SparkSession, folder: Path) -> DataFrame:
    files = session.readStream.schema("id long").option("maxFilesPerTrigger", 1)
    return files.json(str(folder / "input")).repartition(2).selectExpr("cast(id as string) AS value")


def start(
    session: SparkSession,
    folder: Path,
    options: dict[str, str],
    checkpoint: str = "checkpoint",
    **trigger: object,
) -> StreamingQuery:
    writer = read_stream(session, folder).writeStream.format("sinksdk").options(**options)
    writer = writer.option("checkpointLocation", str(folder / checkpoint))
    return writer.trigger(**(trigger or {"availableNow": True})).start()


SETTINGS = {"spark.master": "local[2,4]", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}


def main(folder: Path, options: dict[str, str], conf: dict[str, str]) -> None:
    session = SparkSession.builder.config(map={**SETTINGS, **conf}).getOrCreate()
    if not conf:
        options = {**options, "kill.driver": str(os.getpgrp())}
    start(session, folder, options).awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]), json.loads((*sys.argv, "{}")[3]))
