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
        description="Where the files go; on a cluster, a path that all executors share.",
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
        """Takes a batch of one partition. A full file asks for a commit."""
        partition = records.partition
        if partition not in self.files:
            folder = self.config.folder
            file = HiddenFile.begin(folder, partition, records.first_offset)
            self.files[partition] = file
            self.context.prepared({partition: [file.token]})  # before it holds anything
        file = self.files[partition]
        file.end = self.write(file, records)
        file.records += len(records)  # only now they are accepted
        if file.records >= self.config.flush_size:
            self.context.request_commit()

    def write(self, file: HiddenFile, records: SinkRecords) -> int:
        """What may fail for a moment raises RetriableException, and is done again."""
        return file.write(records)

    def pre_commit(self, offsets: Offsets) -> Offsets:
        """Returns what is durable: full files, and everything on close."""
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
        """Called after the commit; by the partition's next owner if this one dies."""
        for token in tokens:
            publish(token)

    def discard(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        """Called for what was prepared, and is in no commit."""
        for token in tokens:
            discard(token)

    def close(self, partitions: Collection[TopicPartition]) -> None:
        """Lets go of these partitions only; nothing can be committed any more."""
        for partition in partitions:
            if partition in self.files:
                self.files.pop(partition).stream.close()


class MySinkConnector(SinkConnector):
    """JSON lines in a folder, exactly once."""

    config_class = MySinkConfig
    task_class = MySinkTask

    def start(self, config: MySinkConfig) -> None:
        """Runs before the tasks: is the destination there, and may it be written?"""
        try:
            config.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"'folder': {config.folder} cannot be made: {error.strerror}"
            raise ConfigException(message) from error

    def batch_policy(self, config: MySinkConfig) -> BatchPolicy:
        """When waiting records are worth reading: a file's, or what waits a minute."""
        return BatchPolicy(max_records=config.flush_size, max_wait=60)
