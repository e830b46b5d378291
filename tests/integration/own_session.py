"""A program with a Spark session and an event loop of its own, like a notebook, that runs connectors.

Argument: a folder with a topic directory ``topics``. It prints what it saw as JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import sinksdk

NAME = "lines"


def facts(session: SparkSession) -> dict[str, Any]:
    context = session.sparkContext
    return {
        "application": context.applicationId,
        "conf": dict(sorted(context.getConf().getAll())),
        "sql": session.conf.get("spark.sql.shuffle.partitions"),
        "properties": {key: context.getLocalProperty(key) for key in ("spark.scheduler.pool", "mine")},
        "tags": sorted(context.getJobTags()),
        "environment": {key: os.environ.get(key) for key in ("PYSPARK_PYTHON", "SPARK_LOCAL_IP")},
    }


def config(folder: Path, **more: object) -> dict[str, object]:
    return {
        "name": NAME,
        "connector.class": "tests.integration.line_sink:LineSink",
        "topics": "t",
        "tasks.max": 2,
        "out.folder": folder / "out",
        "batch.size": 1_000_000,  # more records than the topic has: only closing writes a batch
        "closing.poll.ms": 100,
        **more,
    }


async def until(condition: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < give_up
        await asyncio.sleep(0.05)


async def notebook(session: SparkSession, folder: Path, where: dict[str, Any]) -> dict[str, Any]:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0.01)

    ticking = asyncio.create_task(tick())

    def is_reading(generation: int) -> bool:
        status = connector.status()
        positions = [partition.position or 0 for partition in status.partitions]
        done = [partition.committed or 0 for partition in status.partitions]
        return status.generation == generation and any(p > c for p, c in zip(positions, done, strict=True))

    # A partition takes 20 s to read, because a busy machine may need several seconds to detect the request,
    # or to close the partition.
    with sinksdk.start(config(folder, **{"pause.seconds": 2.0}), spark=session, **where) as connector:
        await until(lambda: is_reading(1))
        connector.rebalance()
        await until(lambda: is_reading(2))
        rebalanced = committed(where)
        summary = await asyncio.to_thread(connector.stop)
    ticking.cancel()
    return {
        "ticks": ticks,
        "rebalanced": rebalanced,
        "stopped": committed(where),
        "summary": {str(partition): count for partition, count in summary.partitions.items()},
        "files": summary.files,
        "state": connector.status().state,
    }


def committed(where: dict[str, Any]) -> dict[str, int]:
    return {str(p): at.offset for p, at in sinksdk.committed_offsets(where["store"], NAME).items()}


def main(folder: Path) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .appName("notebook")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "3")
        .getOrCreate()
    )
    session.sparkContext.setLocalProperty("spark.scheduler.pool", "mine")
    session.sparkContext.setLocalProperty("mine", "kept")
    (folder / "out").mkdir()
    where = {"source": folder / "topics", "store": f"sqlite:///{folder}/store.sqlite"}
    session.range(1).count()  # Spark SQL adds its warehouse to the settings when it is first used
    before = facts(session)
    seen = asyncio.run(notebook(session, folder, where))
    # Without a session in the call, the active one is used.
    rest = sinksdk.run(config(folder), until_caught_up=True, **where)
    seen |= {
        "rest": rest.records,
        "caught_up": committed(where),
        "before": before,
        "after": facts(session),
        "counted": session.range(7).count(),
    }
    session.stop()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
