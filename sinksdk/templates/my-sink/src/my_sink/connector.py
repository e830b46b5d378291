"""Configuration, task and connector."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pydantic import Field
from sinksdk import (
    BatchPolicy,
    ConfigException,
    ConnectorConfig,
    OffsetAndMetadata,
    SinkConnector,
    SinkRecords,
    SinkTask,
    Token,
    TopicPartition,
)

from my_sink.destination import HiddenFile, discard, publish

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class MySinkConfig(ConnectorConfig):
    folder: Path = Field(
        description="Folder of the files; on a cluster, a path that all executors share.",
    )
    flush_size: int = Field(
        default=1_000,
        ge=1,
        alias="flush.size",
        description="Records after which a file is full.",
    )


class MySinkTask(SinkTask):
    def start(self, config: MySinkConfig) -> None:
        self.config = config
        self.files: dict[TopicPartition, HiddenFile] = {}

    def put(self, records: SinkRecords) -> None:
        """Write a batch of one partition; request a commit when its file is full."""
        partition = records.partition
        if partition not in self.files:
            folder = self.config.folder
            file = HiddenFile.begin(folder, partition, records.first_offset)
            self.files[partition] = file
            self.context.prepared({partition: [file.token]})  # before the file has data
        file = self.files[partition]
        file.end = self.write(file, records)
        file.records += len(records)  # after an error the same records are put again
        if file.records >= self.config.flush_size:
            self.context.request_commit()

    def write(self, file: HiddenFile, records: SinkRecords) -> int:
        """Raise RetriableException for a transient error: the records are put again."""
        return file.write(records)

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Finish full files, and all files on close; return what is durable."""
        least = 0 if self.context.is_closing() else self.config.flush_size
        ready = {}
        for partition, offset in offsets.items():
            file = self.files.get(partition)
            if file is None or not file.records:
                ready[partition] = offset
            elif file.records >= least:
                file.finish()
                del self.files[partition]
                tokens = [file.token]
                ready[partition] = OffsetAndMetadata(offset.offset, publish=tokens)
        return ready

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Runs after the commit; in the partition's next owner if this one dies."""
        for token in tokens:
            publish(token)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Remove files that were prepared and are in no commit."""
        for token in tokens:
            discard(token)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Release these partitions only. Records written here are in no commit."""
        for partition in partitions:
            if partition in self.files:
                self.files.pop(partition).stream.close()


class MySinkConnector(SinkConnector):
    """JSON lines in a folder, exactly once."""

    config_class = MySinkConfig
    task_class = MySinkTask

    def start(self, config: MySinkConfig) -> None:
        """Check the destination before the tasks start."""
        try:
            config.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"'folder': cannot create {config.folder}: {error.strerror}"
            raise ConfigException(message) from error

    def batch_policy(self, config: MySinkConfig) -> BatchPolicy:
        """Read a batch when a file is full, or when records have waited a minute."""
        return BatchPolicy(max_records=config.flush_size, max_wait=60)
