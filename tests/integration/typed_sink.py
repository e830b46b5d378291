"""The exactly-once folder sink for typed records: each row with Python's objects and the Arrow types of its batch."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from pydantic import Field

from examples.exactly_once_folder_sink import ExactlyOnceFolderSink, FolderConfig, FolderTask, HiddenFile
from sinksdk import SinkRecords


class TypedConfig(FolderConfig):
    slow: Path = Field(alias="slow.file", description="While it exists, a batch takes a tenth of a second.")


class TypedTask(FolderTask):
    config: TypedConfig

    def put(self, records: SinkRecords) -> None:
        if self.config.slow.exists():
            time.sleep(0.1)
        super().put(records)

    def write(self, file: HiddenFile, records: SinkRecords) -> int:
        kinds = [str(records.arrow.column(name).type) for name in ("key", "value")]
        rows = [[record.offset, repr(record.key), repr(record.value), *kinds] for record in records]
        file.cut()
        file.stream.writelines(f"{json.dumps(row)}\n".encode() for row in rows)
        return file.stream.tell()


class TypedSink(ExactlyOnceFolderSink):
    config_class, task_class = TypedConfig, TypedTask


def rows_in(folder: Path) -> dict[str, list[list[Any]]]:
    found: dict[str, list[list[Any]]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        found.setdefault(path.stem.partition("+")[0], []).extend(rows)
    return found
