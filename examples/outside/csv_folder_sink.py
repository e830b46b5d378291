"""CSV files in a folder, exactly once: hidden until they are committed, then renamed."""

import csv
import os
import uuid
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

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
Row = tuple[int, str, str]


class CsvConfig(ConnectorConfig):
    folder: Path = Field(description="Folder of the files: an absolute path that all executors share.")
    flush_size: int = Field(default=1_000, ge=1, alias="flush.size", description="Records of a full file.")


class CsvTask(SinkTask):
    def start(self, config: CsvConfig) -> None:
        self.config = config
        self.rows: dict[TopicPartition, list[Row]] = {}
        config.folder.mkdir(parents=True, exist_ok=True)

    def open(self, partitions: Collection[TopicPartition]) -> None:
        self.rows |= {partition: [] for partition in partitions}

    def put(self, records: SinkRecords) -> None:
        rows = self.rows[records.partition]
        rows += [(record.offset, text(record.key), text(record.value)) for record in records]
        if len(rows) >= self.config.flush_size:
            self.context.request_commit()

    def pre_commit(self, offsets: Offsets) -> Offsets:
        least = 1 if self.context.is_closing() else self.config.flush_size
        tokens = {p: self.token(p) for p in offsets if len(self.rows[p]) >= least}
        if tokens:
            self.context.prepared({partition: [token] for partition, token in tokens.items()})
        for partition, token in tokens.items():
            write(Path(token.id), self.rows[partition])
            self.rows[partition] = []
        return {
            partition: OffsetAndMetadata(
                offset.offset, publish=[tokens[partition]] if partition in tokens else []
            )
            for partition, offset in offsets.items()
            if not self.rows[partition]
        }

    def token(self, partition: TopicPartition) -> Token:
        name = f"{partition}+{self.rows[partition][0][0]:010d}"
        hidden = self.config.folder / f".{name}-{uuid.uuid4().hex}"
        return Token(str(hidden), {"visible": str(self.config.folder / f"{name}.csv")})

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        for token in tokens:
            hidden, visible = Path(token.id), Path(token.data["visible"])
            if hidden.exists():
                hidden.rename(visible)
            elif not visible.exists():  # otherwise it is already published
                message = f"{partition}: {hidden} was committed and is missing; restore it from a backup"
                raise ConnectException(message)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:  # noqa: ARG002 - tokens say all
        for token in tokens:
            Path(token.id).unlink(missing_ok=True)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.rows.pop(partition, None)


class CsvFolderSink(SinkConnector):
    config_class, task_class = CsvConfig, CsvTask

    def batch_policy(self, config: CsvConfig) -> BatchPolicy:
        return BatchPolicy(max_records=config.flush_size, max_wait=60)


def text(value: bytes | None) -> str:
    return "" if value is None else value.decode()


def write(path: Path, rows: Sequence[Row]) -> None:
    """Make the whole file durable: the commit comes next."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
        file.flush()
        os.fsync(file.fileno())
