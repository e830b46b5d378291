"""Archivers for KIP-275's scene: one whose partitions progress at different speeds, one that ignores ``is_closing()``."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from sinksdk import OffsetAndMetadata, SinkRecords, SinkTaskContext, TopicPartition
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask

FAST = 3  # the partition that is the first to fill its file
SLOW_FROM = 40_000  # the offset from which the others are slow
PAUSE = 2.0  # seconds that each batch of the slow partitions takes, in which a task sees the close request


class PacedConfig(S3ArchiverConfig):
    hold: Path = Field(alias="hold.file", description="While it exists, the slow partitions wait.")


class PacedTask(S3ArchiverTask):
    # Three partitions are slow: the fourth one commits while their files are incomplete.
    def start(self, config: S3ArchiverConfig) -> None:
        assert isinstance(config, PacedConfig)
        self._hold = config.hold
        super().start(config)

    def put(self, records: SinkRecords) -> None:
        if records.partition.partition != FAST and records.next_offset > SLOW_FROM:
            time.sleep(PAUSE)
            while self._hold.exists():
                time.sleep(0.05)
        super().put(records)


class DeafContext:
    def __init__(self, context: SinkTaskContext) -> None:
        self._context = context

    def is_closing(self) -> bool:
        return False

    def __getattr__(self, name: str) -> object:
        return getattr(self._context, name)


class DeafTask(PacedTask):
    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        context, self.context = self.context, DeafContext(self.context)  # type: ignore[assignment]  # as in Connect
        try:
            return super().pre_commit(offsets)
        finally:
            self.context = context


class PacedArchiver(S3ArchiverConnector):
    config_class, task_class = PacedConfig, PacedTask


class DeafArchiver(PacedArchiver):
    task_class = DeafTask
