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
    folder: Path = Field(description="Whose files are read: `*.jsonl`.")
    topic: str = Field(description="Where their lines go.")
    batch_records: int = Field(
        default=1_000,
        ge=1,
        alias="batch.records",
        description="Records of a transaction: about this many, at most.",
    )
    poll_interval_ms: int = Field(
        default=500,
        ge=1,
        alias="poll.interval.ms",
        description="Milliseconds between two looks, where there is nothing new.",
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
        """Returns what is new. The last position of each part is kept only at the end:
        after an error, the same records are read again.
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
        """The next records. Raise RetriableException for what may pass: poll is tried again."""
        return origin.read(self.config.folder, part, position, most)

    def is_mine(self, part: str) -> bool:
        """Tasks divide the parts; whichever task reads one, its offsets are the same."""
        number = zlib.crc32(part.encode()) % self.config.task_count
        return number == self.config.task_number

    def look_up(self, parts: Sequence[str]) -> None:
        """Where earlier tasks have committed."""
        for part in parts:
            offset = self.context.offset_storage_reader().offset({"file": part})
            self.positions[part] = int(str(offset["byte"])) if offset else origin.START

    def record(self, part: str, value: bytes, end: int) -> SourceRecord:
        """A record, the part it is from, and where to read on after it."""
        topic, key = self.config.topic, part.encode()  # Kafka keeps a key's order
        return SourceRecord({"file": part}, {"byte": end}, topic, value, key)

    def stop(self) -> None:
        """May be called from another thread: ends the waiting, and nothing else."""
        self.stopping.set()

    def stopped(self) -> None:
        """Called last of all. Close here what `start` has opened, if it came so far."""


class MySourceConnector(SourceConnector):
    """The lines of the files in a folder, exactly once."""

    config_class = MySourceConfig
    task_class = MySourceTask

    def start(self, config: MySourceConfig) -> None:
        """Runs before the tasks: is the origin there, and may it be read?"""
        if not config.folder.is_dir():
            message = (
                f"'folder' is {config.folder}, and there is no such folder; make it"
            )
            raise ConfigException(message)

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, str]]:
        """How the tasks differ."""
        count = str(max_tasks)
        return [{"task.number": str(n), "task.count": count} for n in range(max_tasks)]

    def exactly_once_support(
        self,
        config: MySourceConfig,
    ) -> ExactlyOnceSupport:
        """Supported, since a position always leads to the same records."""
        return ExactlyOnceSupport.SUPPORTED
