"""The folder sink, exactly once: files are hidden until they are committed, then renamed.

The folder and the store must be on one machine, or the folder on a file system that all executors share.
"""

import json
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from pydantic import Field

from sinksdk import (
    BatchPolicy,
    ConnectException,
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class FolderConfig(ConnectorConfig):
    folder: Path = Field(description="Folder of the files.")
    flush_size: int = Field(default=1_000, ge=1, alias="flush.size", description="Records of a full file.")


@dataclass
class HiddenFile:
    """A file that readers do not see yet."""

    token: Token
    stream: BinaryIO
    records: int = 0
    end: int = 0  # bytes of accepted records; a put that failed may have left more behind them

    def cut(self) -> None:
        """Remove the rest of a put that failed."""
        self.stream.seek(self.end)
        self.stream.truncate()


class FolderTask(SinkTask):
    def start(self, config: FolderConfig) -> None:
        self.config = config
        self.files: dict[TopicPartition, HiddenFile] = {}

    def put(self, records: SinkRecords) -> None:
        partition = records.partition
        if partition not in self.files:
            self.files[partition] = self.begin(partition, records.first_offset)
        file = self.files[partition]
        file.end = self.write(file, records)  # after an error the same records are put again
        file.records += len(records)
        if file.records >= self.config.flush_size:
            self.context.request_commit()

    def begin(self, partition: TopicPartition, offset: int) -> HiddenFile:
        """Create an empty file, then prepare its token: a crash between the two leaves no data."""
        self.config.folder.mkdir(parents=True, exist_ok=True)
        name = f"{partition}+{offset:010d}"
        hidden = (self.config.folder / f".{name}-{uuid.uuid4().hex}").absolute()
        visible = (self.config.folder / f"{name}.jsonl").absolute()
        stream = hidden.open("xb")
        token = Token(str(hidden), {"visible": str(visible)})
        self.context.prepared({partition: [token]})
        return HiddenFile(token, stream)

    def write(self, file: HiddenFile, records: SinkRecords) -> int:
        """Append to the accepted records, and return the new end of the file."""
        lines = [json.dumps({"offset": record.offset, "value": record.value}) + "\n" for record in records]
        file.cut()
        file.stream.write("".join(lines).encode())
        return file.stream.tell()

    def pre_commit(self, offsets: Offsets) -> Offsets:
        least = 0 if self.context.is_closing() else self.config.flush_size
        ready = {}
        for partition, offset in offsets.items():
            file = self.files.get(partition)
            if file is None or not file.records:
                ready[partition] = offset  # all records were skipped
            elif file.records >= least:
                finish(self.files.pop(partition))
                ready[partition] = OffsetAndMetadata(offset.offset, publish=[file.token])
        return ready

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            hidden, visible = Path(token.id), Path(token.data["visible"])
            try:
                hidden.rename(visible)
                sync(visible.parent)
            except FileNotFoundError as error:
                if not visible.exists():  # otherwise it is already published
                    message = f"{partition}: {hidden} was committed and is missing; restore it from a backup"
                    raise ConnectException(message) from error

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:  # noqa: ARG002 - tokens say all
        for token in tokens:
            Path(token.id).unlink(missing_ok=True)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            if partition in self.files:
                self.files.pop(partition).stream.close()


def finish(file: HiddenFile) -> None:
    """Make the file durable: the commit comes next."""
    file.cut()
    file.stream.flush()
    os.fsync(file.stream.fileno())
    file.stream.close()
    sync(Path(file.token.id).parent)


def sync(folder: Path) -> None:
    """Make the names in the folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class ExactlyOnceFolderSink(SinkConnector):
    config_class, task_class = FolderConfig, FolderTask

    def batch_policy(self, config: FolderConfig) -> BatchPolicy:
        return BatchPolicy(max_records=config.flush_size, max_wait=60)
