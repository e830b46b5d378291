"""Slow the archiver down and keep a journal of its batches, as ``PacedS3SinkTask`` does in Java."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import ClassVar

from pydantic import Field

from benchmarks.kafka_connect.kip275.scene import FAST, RATE, SLOW_FROM
from sinksdk import SinkRecords, SinkTask, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask


class PacedConfig(S3ArchiverConfig):
    """The archiver's configuration, and the path of the journal."""

    journal: str = Field(description="The file that has what tasks were handed.")


class PacedTask(S3ArchiverTask):
    """All partitions but one are slow from some offset on; a journal lists the batches."""

    def start(self, config: S3ArchiverConfig) -> None:
        super().start(config)
        assert isinstance(config, PacedConfig)
        self._journal = Path(config.journal)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        super().open(partitions)
        self._tell("".join(f"open {place.partition}\n" for place in partitions))

    def put(self, records: SinkRecords) -> None:
        first, end = records.first_offset, records.next_offset
        self._tell(f"put {records.partition.partition} {first} {end}\n")
        if records.partition.partition != FAST:
            time.sleep(max(end - max(first, SLOW_FROM), 0) / RATE)
        super().put(records)

    def _tell(self, lines: str) -> None:
        # The file is opened for appending and written once: lines of several tasks do not mix.
        with self._journal.open("a") as journal:
            journal.write(lines)


class PacedArchiver(S3ArchiverConnector):
    """The archiver with these tasks."""

    config_class: ClassVar[type[S3ArchiverConfig]] = PacedConfig
    task_class: ClassVar[type[SinkTask]] = PacedTask
