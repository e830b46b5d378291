"""A connector for tests of dead letters: appends numbers it accepts as lines, reports those it does not."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

from pydantic import Field

from sinksdk import ConnectorConfig, SinkConnector, SinkRecords, SinkTask


class RefusingConfig(ConnectorConfig):
    folder: Path = Field(alias="out.folder")
    die_at: int = Field(default=-1, alias="die.at", description="Offset at which a worker dies, once.")


class RefusingTask(SinkTask):
    def start(self, config: RefusingConfig) -> None:
        self._folder = config.folder
        self._die_at = config.die_at

    def put(self, records: SinkRecords) -> None:
        accepted = []
        for record in records:
            if record.offset == self._die_at and not (died := self._folder / "died").exists():
                died.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if record.value["refuse"]:
                reporter: Any = self.context.errant_record_reporter()
                reporter.report(record, ValueError("refused"))
            else:
                accepted.append(f"{record.offset}\n")
        with (self._folder / f"{records.partition}.txt").open("a") as file:
            file.write("".join(accepted))


class RefusingSink(SinkConnector):
    config_class = RefusingConfig
    task_class = RefusingTask

    def columns(self, config: Any) -> tuple[str, ...]:
        return ("value",)
