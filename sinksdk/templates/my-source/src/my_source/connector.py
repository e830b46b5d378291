"""Configuration, task and connector."""

import threading
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import Field
from sinksdk import ConfigException
from sinksdk.source import (
    ExactlyOnceSupport,
    SourceConnector,
    SourceConnectorConfig,
    SourceRecord,
    SourceTask,
)

from my_source import origin


class MySourceConfig(SourceConnectorConfig):
    folder: Path = Field(description="Folder of the files to read: `*.jsonl`.")
    topic: str = Field(description="Topic to write to.")
    batch_records: int = Field(
        default=1_000,
        ge=1,
        alias="batch.records",
        description="Records of a transaction, at most (approximately).",
    )
    poll_interval_ms: int = Field(
        default=500,
        ge=1,
        alias="poll.interval.ms",
        description="Milliseconds between two polls without new lines.",
    )
    task_number: int = Field(
        default=0,
        alias="task.number",
        description="Set by the connector.",
    )
    task_count: int = Field(
        default=1,
        alias="task.count",
        description="Set by the connector.",
    )


class MySourceTask(SourceTask):
    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.positions: dict[str, int] = {}

    def start(self, config: MySourceConfig) -> None:
        self.config = config

    def poll(self) -> Sequence[SourceRecord]:
        """Return new records. Positions are kept only at the end, so that the same
        records are read again after an error.
        """
        parts = [
            part for part in origin.parts(self.config.folder) if self.is_mine(part)
        ]
        self.look_up([part for part in parts if part not in self.positions])
        most = max(1, self.config.batch_records // max(1, len(parts)))
        records: list[SourceRecord] = []
        reached: dict[str, int] = {}
        for part in parts:
            position = self.positions[part]
            for value, end in self.read(part, position, most):
                records.append(self.record(part, value, end))
                reached[part] = end
        self.positions |= reached
        if not records:
            self.stopping.wait(self.config.poll_interval_ms / 1_000)
        return records

    def read(self, part: str, position: int, most: int) -> list[tuple[bytes, int]]:
        """Raise RetriableException for a transient error: poll is called again."""
        return origin.read(self.config.folder, part, position, most)

    def is_mine(self, part: str) -> bool:
        """Tasks share the parts; the offsets of a part do not depend on its task."""
        number = zlib.crc32(part.encode()) % self.config.task_count
        return number == self.config.task_number

    def look_up(self, parts: Sequence[str]) -> None:
        """Start each part at its committed offset."""
        for part in parts:
            offset = self.context.offset_storage_reader().offset({"file": part})
            self.positions[part] = int(str(offset["byte"])) if offset else origin.START

    def record(self, part: str, value: bytes, end: int) -> SourceRecord:
        """Return a record with its source partition and the offset after it."""
        topic, key = self.config.topic, part.encode()  # Kafka keeps a key's order
        return SourceRecord({"file": part}, {"byte": end}, topic, value, key)

    def stop(self) -> None:
        """Called from another thread: end the wait, and nothing else."""
        self.stopping.set()

    def stopped(self) -> None:
        """Called last. Close what `start` has opened, which may have failed half-way."""


class MySourceConnector(SourceConnector):
    """The lines of the files in a folder, exactly once."""

    config_class = MySourceConfig
    task_class = MySourceTask

    def start(self, config: MySourceConfig) -> None:
        """Check the origin before the tasks start."""
        if not config.folder.is_dir():
            message = f"'folder': {config.folder} does not exist; create it"
            raise ConfigException(message)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """Return the keys in which the tasks differ."""
        count = str(max_tasks)
        return [{"task.number": str(n), "task.count": count} for n in range(max_tasks)]

    def exactly_once_support(
        self,
        config: MySourceConfig,
    ) -> ExactlyOnceSupport:
        """Supported: reading from a position returns the same records again."""
        return ExactlyOnceSupport.SUPPORTED
