"""A folder in which ``sinksdk run`` reads a topic directory with a connector of the examples."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from sinksdk import SinkRecord, SinkRecords, TopicPartition, committed_offsets
from sinksdk.topics import write_records

ROOT = Path(__file__).parents[2]


class RunSite:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes: list[subprocess.Popen[str]] = []

    @property
    def store(self) -> str:
        return f"sqlite:///{self.folder}/store.sqlite"

    def write(
        self, topic: str, partitions: int, records: int, record: Callable[[TopicPartition, int], SinkRecord]
    ) -> None:
        for number in range(partitions):
            partition = TopicPartition(topic, number)
            rows = [record(partition, offset) for offset in range(records)]
            write_records(self.folder / "topics", partition, SinkRecords.of(partition, rows))

    def configure(self, keys: Mapping[str, object]) -> None:
        (self.folder / "sink.json").write_text(json.dumps({"name": "sink", "config": keys}))

    def start(self, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "sinksdk", "run", str(self.folder / "sink.json")]
        command += ["--topic-directory", str(self.folder / "topics"), "--master", "local[2]"]
        process = subprocess.Popen(
            [*command, "--store", self.store, "--until-caught-up"],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def committed(self) -> dict[int, int]:
        found = committed_offsets(self.store, "sink")
        return {partition.partition: commit.offset for partition, commit in found.items()}

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
