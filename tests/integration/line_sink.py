"""A connector for tests of the command line: offsets as lines, a file per partition, whole batches only."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from pydantic import Field

from sinksdk import (
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecords,
    SinkTask,
    TopicPartition,
)


class LineSinkConfig(ConnectorConfig):
    folder: Path = Field(alias="out.folder")
    batch: int = Field(alias="batch.size")
    pause: float = Field(default=0, alias="pause.seconds")
    poison: int = Field(default=-1, alias="poison.offset")
    hang: int = Field(default=-1, alias="hang.offset")


class LineSinkTask(SinkTask):
    max_poll_records = None  # whole batches, because pauses are per batch

    def start(self, config: LineSinkConfig) -> None:
        self._config = config
        self._waiting: dict[TopicPartition, list[int]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        time.sleep(self._config.pause)
        offsets: list[int] = records.arrow.column("offset").to_numpy().tolist()
        if self._config.poison in offsets:
            message = f"offset {self._config.poison} is poison"
            raise ValueError(message)
        if self._config.hang in offsets:
            (self._config.folder / "hanging").touch()
            threading.Event().wait()
        self._waiting[records.partition] += offsets
        self.context.request_commit()

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {p: OffsetAndMetadata(end) for p in offsets if (end := self._write(p)) is not None}

    def _write(self, partition: TopicPartition) -> int | None:
        waiting, size = self._waiting[partition], self._config.batch
        ready = len(waiting) if self.context.is_closing() else len(waiting) // size * size
        if not ready:
            return None
        text = "".join(f"{offset}\n" for offset in waiting[:ready])
        with (self._config.folder / f"{partition}.txt").open("a") as file:
            file.write(text)
        self.context.count(partition, files=1, bytes=len(text))
        end = waiting[ready - 1] + 1
        del waiting[:ready]
        return end


class LineSink(SinkConnector):
    config_class = LineSinkConfig
    task_class = LineSinkTask
