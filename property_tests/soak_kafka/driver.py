"""``sinksdk run`` as a process, and its child processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.integration.archive_site import descendants
from tests.kafka.archive import KafkaSite


@dataclass
class Driver:
    """A running driver.

    Args:
        number: its number, from 1.
        master: Spark's master.
        process: the process.
        log: its output; a pipe that nobody reads would block it.
    """

    number: int
    master: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, site: KafkaSite, number: int, master: str, *options: str) -> Driver:
        command = [sys.executable, "-m", "sinksdk", "run", str(site.config), *site.source]
        command += ["--store", site.store, "--master", master, *options]
        path = site.folder / f"driver-{number}.log"
        with path.open("wb") as log:
            process = subprocess.Popen(
                command, cwd=site.folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            )
        return cls(number, master, process, path)

    @property
    def has_executors(self) -> bool:
        """Return whether executors are processes of their own."""
        return self.master.startswith("local-cluster")

    def workers(self) -> list[int]:
        """Return the ids of Spark's Python workers, the youngest last, without the daemons that fork them."""
        found = sorted(pid for pid, command in descendants(self.process.pid) if "pyspark.worker" in command)
        return found[1:]

    def executors(self) -> list[int]:
        """Return the ids of executors with a JVM of their own."""
        return [
            pid for pid, command in descendants(self.process.pid) if "CoarseGrainedExecutorBackend" in command
        ]

    def kill(self) -> None:
        """Kill the driver; its JVM and tasks may run on for a while."""
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
