"""A connector that hangs for ever in the method that its configuration names."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask


class HangingSinkConfig(ConnectorConfig):
    hangs: Literal["start", "put", "stop", "nowhere"] = Field(alias="hangs.in")
    calls: Path = Field(alias="calls.file")


def for_ever() -> None:
    """Never return."""
    threading.Event().wait()


class HangingSinkTask(SinkTask):
    def start(self, config: HangingSinkConfig) -> None:
        self._config = config

    def put(self, records: SinkRecords) -> None:
        if self._config.hangs == "put":
            for_ever()


class HangingSink(SinkConnector):
    config_class = HangingSinkConfig
    task_class = HangingSinkTask

    def start(self, config: Any) -> None:
        self._config: HangingSinkConfig = config
        if config.hangs == "start":
            for_ever()

    def stop(self, is_deleted: bool = False) -> None:  # noqa: FBT002 - KIP-883's signature
        with self._config.calls.open("a") as file:
            file.write(f"stop {is_deleted}\n")
        if self._config.hangs == "stop" and is_deleted:
            for_ever()
