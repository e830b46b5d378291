"""The exactly-once folder sink in processes that are killed at a given step of a micro-batch."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from examples.exactly_once_folder_sink import ExactlyOnceFolderSink, FolderConfig, FolderTask
from examples.upsert_sink import UpsertConfig, UpsertSink, UpsertTask
from sinksdk import ConnectException, OffsetAndMetadata, SinkRecords, Token, TopicPartition
from sinksdk.frames.batches import FrameBatches


class KilledConfig(FolderConfig):
    kill_at: str = Field(default="", alias="kill.at", description="The step.")
    kill_flag: Path = Field(
        default=Path(), alias="kill.flag", description="A file: once it is gone, nobody is killed."
    )
    kill_driver: int = Field(
        default=0, alias="kill.driver", description="The driver's process group; 0: this process."
    )
    put_seconds: float = Field(default=0.0, alias="put.seconds", description="How long a batch takes.")
    kill_executor: bool = Field(
        default=False,
        alias="kill.executor",
        description="Whether this process's executor dies, and it with it.",
    )
    stall_seconds: float = Field(
        default=0.0, alias="stall.seconds", description="Stand still so long instead of dying."
    )
    fails_at: str = Field(default="", alias="fails.at", description="A value that cannot be written.")

    def reach(self, step: str) -> None:
        if self.kill_at != step:
            return
        try:
            self.kill_flag.unlink()
        except FileNotFoundError:
            return
        if self.stall_seconds:
            time.sleep(self.stall_seconds)
            return
        if self.kill_executor:
            # The parent of that process is Spark's Python daemon.
            os.kill(parent_of(os.getppid()), signal.SIGKILL)
        if self.kill_driver:
            os.killpg(self.kill_driver, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)


def parent_of(process: int) -> int:
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


class KilledTask(FolderTask):
    config: KilledConfig

    def put(self, records: SinkRecords) -> None:
        time.sleep(self.config.put_seconds)
        if any(record.value == self.config.fails_at for record in records):
            message = f"{self.config.fails_at} cannot be written"
            raise ConnectException(message)
        super().put(records)
        self.config.reach("put")

    def pre_commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        found = super().pre_commit(offsets)
        self.config.reach("prepared")
        return found

    def publish(self, partition: TopicPartition, tokens: Sequence[Token]) -> None:
        super().publish(partition, tokens)
        self.config.reach("published one")


class KilledSink(ExactlyOnceFolderSink):
    config_class, task_class = KilledConfig, KilledTask

    def validate(self, config: KilledConfig) -> Sequence[str]:
        for step, name, is_before in (
            ("before the commit", "_try_settle", True),
            ("committed", "_settle", True),
            ("published", "commit", False),
        ):
            if config.kill_at == step:
                setattr(FrameBatches, name, dying(getattr(FrameBatches, name), config, is_before=is_before))
        return []


class KilledUpsertConfig(UpsertConfig, KilledConfig):
    folder: Path = Field(default=Path(), description="Not used.")


class KilledUpsertTask(UpsertTask):
    def put(self, records: SinkRecords) -> None:
        super().put(records)
        self.config.reach("put")


class KilledUpsertSink(UpsertSink):
    config_class, task_class = KilledUpsertConfig, KilledUpsertTask


def dying(method: Callable[..., Any], config: KilledConfig, *, is_before: bool) -> Callable[..., Any]:
    def call(*arguments: Any) -> Any:
        if is_before:
            config.reach(config.kill_at)
        result = method(*arguments)
        config.reach(config.kill_at)
        return result

    return call
