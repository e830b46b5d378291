from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sinksdk.spark.session import create_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests of this process, with four tasks at a time: it takes seconds to start."""
    session = create_session("sinksdk-tests", "local[4,4]")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a standalone master on the loopback interface, with one worker of one core."""
    folder = tmp_path_factory.mktemp("standalone")
    with _daemon(folder / "master.log", "master.Master") as master:
        try:
            url = _awaited(folder / "master.log", r"Starting Spark master at (spark://\S+)")
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder), url]
            with _daemon(folder / "worker.log", "worker.Worker", *options) as worker:
                try:
                    _awaited(folder / "worker.log", r"(Successfully registered) with master")
                    yield url
                finally:
                    worker.terminate()
        finally:
            master.terminate()


def _daemon(log: Path, name: str, *arguments: str) -> subprocess.Popen[bytes]:
    command = [str(SPARK_HOME / "bin/spark-class"), f"org.apache.spark.deploy.{name}"]
    loopback = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    with log.open("wb") as output:
        return subprocess.Popen(
            [*command, *loopback, *arguments],
            env={**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdout=output,
            stderr=output,
        )


def _awaited(log: Path, pattern: str) -> str:
    """The first group of a pattern, as soon as the log has it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text())
        if match:
            return match[1]
        time.sleep(0.1)
    message = f"{log.name} does not say {pattern!r}: {log.read_text()}"
    raise TimeoutError(message)
