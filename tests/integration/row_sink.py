"""A connector for tests of transforms: everything of each record as a line of JSON, a file per partition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from sinksdk import (
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
    TopicPartition,
)


class RowSinkConfig(ConnectorConfig):
    folder: Path = Field(alias="out.folder")


class RowSinkTask(SinkTask):
    def start(self, config: RowSinkConfig) -> None:
        self._folder = config.folder
        self._waiting: list[SinkRecord] = []

    def put(self, records: SinkRecords) -> None:
        self._waiting.extend(records)

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        for record in self._waiting:
            line = [record.offset, _text(record.key), _text(record.value), record.timestamp]
            line.append([[header.key, _text(header.value)] for header in record.headers])
            with (self._folder / f"{record.topic}-{record.partition}.jsonl").open("a") as file:
                file.write(f"{json.dumps(line)}\n")
        self._waiting.clear()
        return offsets


class RowSink(SinkConnector):
    config_class = RowSinkConfig
    task_class = RowSinkTask


def _text(value: Any) -> str | None:
    return None if value is None else value.decode()


def rows_in(folder: Path) -> dict[str, list[list[Any]]]:
    files: Iterable[Path] = folder.glob("*.jsonl")
    return {path.stem: [json.loads(line) for line in path.read_text().splitlines()] for path in files}
