"""Writes each topic partition as files of JSON lines; a closing commit includes a partial file."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from pydantic import Field

from sinksdk import (
    BatchPolicy,
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecord,
    SinkRecords,
    SinkTask,
    TopicPartition,
)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class FolderConfig(ConnectorConfig):
    folder: Path = Field(description="Folder of the files.")
    flush_size: int = Field(default=1_000, ge=1, alias="flush.size", description="Records of a full file.")


class FolderTask(SinkTask):
    def start(self, config: FolderConfig) -> None:
        self.config = config
        self.waiting: dict[TopicPartition, list[SinkRecord]] = defaultdict(list)

    def put(self, records: SinkRecords) -> None:
        self.waiting[records.partition].extend(records)
        if len(self.waiting[records.partition]) >= self.config.flush_size:
            self.context.request_commit()

    def pre_commit(self, offsets: Offsets) -> Offsets:
        least = 0 if self.context.is_closing() else self.config.flush_size
        ready = {p: offset for p, offset in offsets.items() if len(self.waiting[p]) >= least}
        for partition in ready:
            if records := self.waiting.pop(partition):
                self.write(partition, records)
        return ready

    def write(self, partition: TopicPartition, records: list[SinkRecord]) -> None:
        name = f"{partition}+{records[0].offset:010d}-{records[-1].offset:010d}.jsonl"
        path = self.config.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps({"offset": record.offset, "value": record.value}) for record in records)
        path.with_suffix(".tmp").write_text("".join(f"{line}\n" for line in lines))
        path.with_suffix(".tmp").rename(path)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        for partition in partitions:
            self.waiting.pop(partition, None)


class FolderSink(SinkConnector):
    config_class, task_class = FolderConfig, FolderTask

    def batch_policy(self, config: FolderConfig) -> BatchPolicy:
        return BatchPolicy(max_records=config.flush_size, max_wait=60)
