from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

from sinksdk.spark.context import start_spark

if TYPE_CHECKING:
    from pyspark import SparkContext

SPARK_HOME = Path(pyspark.__file__).parent


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkContext]:
    """One Spark for all tests of this process, with four tasks at a time: it takes seconds to start."""
    spark = start_spark("sinksdk-tests", "local[4,4]")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def standalone_master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a standalone master on the loopback interface, with one worker of one core."""
    with _standalone(tmp_path_factory.mktemp("standalone"), "127.0.0.1") as url:
        yield url


@pytest.fixture(scope="session")
def standalone_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a standalone master with two workers of one core that seem to be on different hosts.

    Spark runs a second copy of a task on another host only.
    """
    with _standalone(tmp_path_factory.mktemp("pair"), "127.0.0.1", "127.0.0.2") as url:
        yield url


@contextmanager
def _standalone(folder: Path, *hosts: str) -> Iterator[str]:
    with ExitStack() as stack:
        stack.enter_context(_daemon(folder / "master.log", "master.Master", "127.0.0.1"))
        url = _awaited(folder / "master.log", r"Starting Spark master at (spark://\S+)")
        for host in hosts:
            log = folder / f"worker-{host}.log"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder), url]
            stack.enter_context(_daemon(log, "worker.Worker", host, *options))
            _awaited(log, r"(Successfully registered) with master")
        yield url


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
    """The first group of a pattern, as soon as the log has it."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        match = re.search(pattern, log.read_text())
        if match:
            return match[1]
        time.sleep(0.1)
    message = f"{log.name} does not say {pattern!r}: {log.read_text()}"
    raise TimeoutError(message)
