from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sinksdk.errors import ConfigException
from sinksdk.spark.context import start_spark
from tests.integration.standalone import Standalone

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = pytest.mark.spark

DRIVER = """
import signal, sys, threading, time
from pathlib import Path
from sinksdk.spark.context import start_spark
from sinksdk.spark.generation_job import run_tasks

folder, master = Path(sys.argv[1]), sys.argv[2]
seen = []
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, frame: seen.append(signal.Signals(number).name))
spark = start_spark("driver", master, extra_conf={"spark.executor.memory": "512m"})

def task(number):
    (folder / "running").touch()
    while not (folder / "finish").exists():
        time.sleep(0.05)
    return number, sys.executable

def run():
    print(*run_tasks(spark, 1, task)[0], flush=True)

job = threading.Thread(target=run)
job.start()
while job.is_alive():
    job.join(0.1)
print(*seen, flush=True)
spark.stop()
"""


class Driver:
    def __init__(self, folder: Path, master: str, **environment: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(folder), master],
            cwd=folder,
            env={**os.environ, **environment},
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_task(self) -> None:
        deadline = time.monotonic() + 90
        while not (self._folder / "running").exists():
            assert self._process.poll() is None, self._process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def signal_group(self, number: int) -> None:
        # A terminal signals the process group like this on Ctrl-C, and `timeout` on SIGTERM.
        os.killpg(self._process.pid, number)
        time.sleep(1)

    def finish(self) -> list[str]:
        (self._folder / "finish").touch()
        output, errors = self._process.communicate(timeout=90)
        assert self._process.returncode == 0
        assert errors == ""
        return output.splitlines()

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@pytest.mark.extended
def test_a_job_survives_signals_to_its_process_group(tmp_path: Path) -> None:
    driver = Driver(tmp_path, "local[2]")
    try:
        driver.await_task()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            driver.signal_group(number)
        ran, signals = driver.finish()
        assert ran == f"0 {sys.executable}"
        # Python handles signals that are pending at the same time by their numbers.
        assert sorted(signals.split()) == ["SIGHUP", "SIGINT", "SIGTERM"]
    finally:
        driver.close()


@pytest.mark.extended
def test_a_job_on_executor_processes_survives_ctrl_c(tmp_path: Path) -> None:
    # Executors that Spark starts are in the terminal's process group.
    driver = Driver(tmp_path, "local-cluster[1,1,512]")
    try:
        driver.await_task()
        driver.signal_group(signal.SIGINT)
        assert driver.finish() == [f"0 {sys.executable}", "SIGINT"]
    finally:
        driver.close()


@pytest.mark.extended
def test_another_python_on_the_path_has_no_effect(tmp_path: Path) -> None:
    # Workers run the driver's interpreter, whatever PATH and pyspark's variables say.
    other = tmp_path / "bin/python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\necho 'another Python' >&2\nexit 1\n")
    other.chmod(0o755)
    path = f"{other.parent}:{os.environ['PATH']}"
    driver = Driver(
        tmp_path, "local[1]", PATH=path, PYSPARK_PYTHON=str(other), PYSPARK_DRIVER_PYTHON="jupyter"
    )
    try:
        driver.await_task()
        assert driver.finish() == [f"0 {sys.executable}", ""]
        assert sorted(path.name for path in tmp_path.iterdir()) == ["bin", "finish", "running"]
    finally:
        driver.close()


@pytest.mark.extended
def test_a_standalone_master_runs_this_interpreter(tmp_path: Path, standalone: Standalone) -> None:
    driver = Driver(tmp_path, standalone.url)
    try:
        driver.await_task()
        assert driver.finish() == [f"0 {sys.executable}", ""]
    finally:
        driver.close()


def test_the_jvm_ends_with_the_driver(tmp_path: Path) -> None:
    # JVM and workers ignore signals: without the driver they must end by themselves.
    driver = Driver(tmp_path, "local[1]")
    try:
        driver.await_task()
        group = driver._process.pid
        assert _processes_of_session(group)
        driver._process.kill()
        driver._process.communicate()
        deadline = time.monotonic() + 30
        while _processes_of_session(group):
            assert time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        driver.close()


def test_a_session_listens_on_the_loopback_interface_only(spark: SparkContext) -> None:
    addresses = _listening(spark._gateway.proc.pid)  # type: ignore[union-attr] # it has started
    assert addresses
    loopback = {"0100007F", "0" * 16 + "FFFF00000100007F", "0" * 24 + "01000000"}
    assert addresses <= loopback


def test_a_second_session_is_refused(spark: SparkContext) -> None:
    # pyspark would silently return the first session.
    with pytest.raises(ConfigException, match="is already running in this process"):
        start_spark("another", "local[1]")
    assert not spark._jsc.sc().isStopped()


def test_the_signal_handler_is_not_replaced_by_spark(spark: SparkContext) -> None:
    # pyspark would install its own SIGINT handler.
    assert spark.appName == "sinksdk-tests"
    assert signal.getsignal(signal.SIGINT) in {signal.default_int_handler, signal.SIG_IGN}


@pytest.mark.extended
def test_a_configuration_that_spark_refuses_is_a_config_error(tmp_path: Path) -> None:
    script = (
        "from sinksdk.spark.context import start_spark\n"
        "from sinksdk import ConfigException\n"
        "try: start_spark('x', 'local[1]', extra_conf={'spark.executor.heartbeatInterval': '1000s'})\n"
        "except ConfigException as error: print(error)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=90, check=True
    )
    assert re.fullmatch(r"Spark cannot start on master local\[1,4\]: .*heartbeatInterval.*\n", run.stdout)


def _processes_of_session(session: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended meanwhile
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def _listening(pid: int) -> set[str]:
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue  # the file was closed meanwhile
        match = re.fullmatch(r"socket:\[(\d+)\]", target)
        if match:
            inodes.add(match[1])
    addresses = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                addresses.add(fields[1].partition(":")[0])
    return addresses
