"""An archiver one of whose tasks is slow the first time it runs, as on a bad machine."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from sinksdk import SinkRecords, Token, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask

HERE: Final = Path(__file__).parent  # the driver's working directory, which all executors share
SLOW: Final = 0  # the partition whose first copy is slow
PAUSE: Final = 3.0  # seconds each of its batches takes


class SlowOnceTask(S3ArchiverTask):
    def open(self, partitions: Collection[TopicPartition]) -> None:
        super().open(partitions)
        self._is_slow = SLOW in {p.partition for p in partitions} and _is_first()
        for partition in partitions:
            _note("opened", partition, "slow" if self._is_slow else "fast")

    def put(self, records: SinkRecords) -> None:
        if self._is_slow:
            time.sleep(PAUSE)
        super().put(records)

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().publish(partition, tokens)
        for token in tokens:
            _note("published", partition, token.data["key"])


class SlowOnceArchiver(S3ArchiverConnector):
    task_class = SlowOnceTask


def _is_first() -> bool:
    try:
        (HERE / "first").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _note(what: str, partition: TopicPartition, detail: str) -> None:
    with (HERE / f"{what}.txt").open("a") as file:
        file.write(f"{partition.partition} {os.getpid()} {detail}\n")
