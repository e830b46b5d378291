"""A source that counts. Each of its tasks writes its process id to a file."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import Field

from sinksdk.source import SourceConnector, SourceConnectorConfig, SourceRecord, SourceTask


class CountingConfig(SourceConnectorConfig):
    folder: Path = Field(description="Where process ids go.")
    share: int = Field(default=0, description="Which of the tasks it is.")
    fail_at: int = Field(default=-1, alias="fail.at", description="At which number task 0 fails, once.")
    hangs: str = Field(default="", alias="hangs.in", description="In which method task 0 hangs, once.")


class CountingTask(SourceTask):
    def start(self, config: CountingConfig) -> None:
        self.config, self.stopping = config, threading.Event()
        self.partition = {"share": config.share}
        offset = self.context.offset_storage_reader().offset(self.partition)
        self.next = int(offset["next"]) if offset else 0  # type: ignore[arg-type]  # a number
        (config.folder / f"{config.share}.pid").write_text(str(os.getpid()))
        self.hang_in("start")

    def poll(self) -> Sequence[SourceRecord]:
        self.hang_in("poll")
        self.stopping.wait(0.02)
        numbers = range(self.next, self.next + 10)
        failed = self.config.folder / f"{self.config.share}.failed"
        if self.config.share == 0 and self.config.fail_at in numbers and not failed.exists():
            failed.touch()
            raise OSError("the source is gone")
        self.next = numbers.stop
        return [
            SourceRecord(
                self.partition, {"next": n + 1}, "numbers", str(n).encode(), partition=self.config.share
            )
            for n in numbers
        ]

    def hang_in(self, method: str) -> None:
        hung = self.config.folder / "hung"
        if self.config.share == 0 and self.config.hangs == method and not hung.exists():
            hung.write_text(str(os.getpid()))
            threading.Event().wait()

    def stop(self) -> None:
        self.stopping.set()

    def stopped(self) -> None:
        (self.config.folder / f"{self.config.share}.stopped").touch()


class CountingSource(SourceConnector):
    config_class, task_class = CountingConfig, CountingTask

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, Any]]:
        return [{"share": str(share)} for share in range(max_tasks)]


class WatchingSource(CountingSource):
    """Has a task for each file ``N.table`` of the folder; a thread of the connector watches the folder."""

    def start(self, config: CountingConfig) -> None:
        self.config, self.stopping = config, threading.Event()
        self.thread = threading.Thread(target=self.watch, name="tables")
        self.thread.start()

    def watch(self) -> None:
        seen = self.tables()
        while not self.stopping.wait(0.05):
            if (now := self.tables()) != seen:
                seen = now
                self.context.request_task_reconfiguration()

    def tables(self) -> list[str]:
        return sorted(path.stem for path in self.config.folder.glob("*.table"))

    def task_configs(self, max_tasks: int) -> Sequence[Mapping[str, Any]]:
        return [{"share": share} for share in self.tables()]

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        self.stopping.set()
        self.thread.join()
