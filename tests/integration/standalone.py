"""A standalone Spark cluster on this machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent


class Standalone(NamedTuple):
    url: str
    page: str

    def applications(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"{self.page}/json/", timeout=60) as answer:  # noqa: S310 - of our own
            found: list[dict[str, Any]] = json.load(answer)["activeapps"]
        return found

    def await_applications(self, count: int) -> list[dict[str, Any]]:
        # The master learns of starts and ends a little later.
        deadline = time.monotonic() + 60
        while len(found := self.applications()) != count:
            assert time.monotonic() < deadline, f"{count} applications expected, not {found}"
            time.sleep(0.1)
        return found


@contextmanager
def running(folder: Path) -> Iterator[Standalone]:
    # Two workers that seem to be on different hosts, because Spark runs a second copy of a task only on
    # another host.
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder / "master.log", "master.Master", "127.0.0.1"))
        url = _awaited(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        page = _awaited(folder / "master.log", r"MasterWebUI.*(http://\S+)")
        for host in ("127.0.0.1", "127.0.0.2"):
            log = folder / f"worker-{host}.log"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder), url]
            stack.enter_context(_daemon(log, "worker.Worker", host, *options))
            _awaited(log, r"(Successfully registered) with master")
        yield Standalone(url, page)


@contextmanager
def _daemon(log: Path, name: str, host: str, *arguments: str) -> Iterator[None]:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
    ports = ["--host", host, "--port", "0", "--webui-port", "0"]
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [*command, *ports, *arguments],
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": host},
            stdout=output,
            stderr=output,
        )
    with daemon:
        try:
            yield
        finally:
            daemon.terminate()


def _awaited(log: Path, pattern: str) -> str:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text())
        if match:
            return match[1]
        time.sleep(0.1)
    message = f"{log.name} does not say {pattern!r}: {log.read_text()}"
    raise TimeoutError(message)
