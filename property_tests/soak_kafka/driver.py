"""``sinksdk run`` in a process, and what of it can be killed."""

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
        number: which one it is, from 1.
        master: Spark's.
        process: itself.
        log: where its output goes; a pipe that nobody reads would hold it up.
    """

    number: int
    master: str
    process: subprocess.Popen[bytes]
    log: Path

    @classmethod
    def start(cls, site: KafkaSite, number: int, master: str, *options: str) -> Driver:
        """Start one, in a process group of its own."""
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
        """Whether its executors are processes of their own."""
        return self.master.startswith("local-cluster")

    def workers(self) -> list[int]:
        """Process ids of Spark's Python workers, the youngest last; each daemon that forks them left out."""
        found = sorted(pid for pid, command in descendants(self.process.pid) if "pyspark.worker" in command)
        return found[1:]

    def executors(self) -> list[int]:
        """Process ids of executors that have a JVM of their own."""
        return [
            pid for pid, command in descendants(self.process.pid) if "CoarseGrainedExecutorBackend" in command
        ]

    def kill(self) -> None:
        """End the driver itself at once; its JVM finds that out alone, and its tasks may go on for a while."""
        self.process.kill()
        self.process.wait()

    def remove(self) -> None:
        """End whatever is left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
