"""spark-submit on a standalone cluster, with a query: flights are archived as Spark itself computes them.

The same connector runs four times. The first run is rebalanced and ends with a Ctrl-C, the second one loses an executor
and is terminated, the driver of the third one is killed, and the fourth one catches up.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sinksdk.cli.demo.play import write_topic
from sinksdk.control.herder import Herder
from sinksdk.store import open_store
from tests.integration.archive_site import Site, descendants, ended, site, wait_until
from tests.integration.standalone import SPARK_HOME, Standalone
from tests.test_docs import ROOT, fences

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUERY = next(fence.code for fence in fences(ROOT / "docs/transforms.md") if "hours" in fence.code)
MEMORY = 600  # MB
OPTIONS = ["--name", "delayed flights", "--executor-memory", f"{MEMORY}m", "--conf", "spark.mine=kept"]
FLUSH_SIZE = 1_000
TYPES = {"partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}
"""Of the columns that are compared besides the timestamp."""


@dataclass
class Seen:
    """What was seen of the four runs."""

    inside: dict[str, Any] = field(default_factory=dict)
    application: dict[str, Any] = field(default_factory=dict)
    executors: list[str] = field(default_factory=list)
    """Command lines."""
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    committed: dict[str, dict[int, int]] = field(default_factory=dict)
    generations: list[int] = field(default_factory=list)
    """Before and after the rebalance."""


class Runs:
    """Runs the program, interrupts it, and keeps what was seen."""

    def __init__(self, archive: Site, cluster: Standalone) -> None:
        self.archive, self.cluster, self.seen = archive, cluster, Seen()
        self._before = 0

    def start(self, *options: str) -> subprocess.Popen[str]:
        """spark-submit in a process group of its own, as a shell starts it."""
        self._before = sum(self.archive.committed().values())
        program = Path(__file__).with_name("submitted_flights.py")
        command = [SPARK_HOME / "bin/spark-submit", "--master", self.cluster.url, *OPTIONS, program]
        arguments = [self.archive.config, self.archive.topics, self.archive.store, self.archive.folder]
        env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        return self.archive.started([*map(str, (*command, *arguments)), *options], env)

    def go_on(self, run: subprocess.Popen[str]) -> None:
        """Wait until more is committed than before."""
        before = self._before + 3 * FLUSH_SIZE
        wait_until(lambda: sum(self.archive.committed().values()) > before, run, "more was committed")
        self._before = sum(self.archive.committed().values())

    def end(self, run: subprocess.Popen[str], name: str) -> None:
        """Wait for its end."""
        seen = self.seen
        seen.codes[name], seen.outputs[name] = ended(run)
        seen.committed[name] = self.archive.committed()
        lines = [line for line in seen.outputs[name].splitlines() if line.startswith('{"records"')]
        seen.summaries[name] = json.loads(lines[-1]) if lines else {}

    def executors(self) -> dict[int, str]:
        """Executors of the application that runs now: process and command line."""
        (application,) = self.cluster.applications()
        wanted = ("CoarseGrainedExecutorBackend", application["id"])
        return {
            pid: command
            for pid, command in descendants(os.getpid())
            if command.split(" ")[0].endswith("java") and all(word in command for word in wanted)
        }

    def generation(self) -> int:
        store = open_store(self.archive.store)
        try:
            return Herder(store).info("archive").generation
        finally:
            store.close()

    def rebalance(self) -> None:
        store = open_store(self.archive.store)
        try:
            Herder(store).rebalance("archive")
        finally:
            store.close()

    def interrupted_and_rebalanced(self) -> None:
        run = self.start()
        self.go_on(run)
        self.seen.inside = json.loads((self.archive.folder / "inside.json").read_text())
        (self.seen.application,) = self.cluster.applications()
        self.seen.executors = list(self.executors().values())
        before = self.generation()
        self.rebalance()
        wait_until(lambda: self.generation() > before, run, "another generation began")
        self.seen.generations = [before, self.generation()]
        self.go_on(run)
        os.killpg(run.pid, signal.SIGINT)
        self.end(run, "interrupted")

    def terminated_without_an_executor(self) -> None:
        run = self.start()
        self.go_on(run)
        os.kill(min(self.executors()), signal.SIGKILL)
        self.go_on(run)
        os.kill(run.pid, signal.SIGTERM)  # the JVM alone gets it: spark-submit has become it
        self.end(run, "terminated")

    def killed(self) -> None:
        run = self.start()
        self.go_on(run)
        drivers = [pid for pid, command in descendants(run.pid) if "submitted_flights.py" in command]
        os.kill(min(drivers), signal.SIGKILL)
        self.end(run, "killed")

    def caught_up(self) -> None:
        self.archive.s3.heal()
        self.end(self.start("--own-session"), "caught up")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("submitted")) as made:
        made.topic = "flights"
        made.configure(records_sql=QUERY, tasks_max=2, flush_size=FLUSH_SIZE, offset_flush_interval_ms=500)
        write_topic(made.topics)
        made.s3.delays["CompleteMultipartUpload"] = 0.5
        write_rows(made)
        yield made


def write_rows(archive: Site) -> None:
    """The topic as a table that has the columns of the view ``records``."""
    (archive.folder / "rows").mkdir()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for partition in range(4):
        (file,) = archive.topics.glob(f"*/partition={partition}/*.parquet")
        table = pq.read_table(file, partitioning=None)
        table = table.set_column(3, "timestamp", table.column("timestamp").cast(pa.timestamp("us", "UTC")))
        size = table.num_rows
        rows = table.append_column("topic", pa.repeat("flights", size))
        rows = rows.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), size))
        rows = rows.append_column("timestampType", pa.repeat(pa.scalar(0, pa.int32()), size))
        rows = rows.append_column("headers", pa.nulls(size, headers))
        pq.write_table(rows, archive.folder / f"rows/{partition}.parquet")


def archived(archive: Site) -> list[tuple[Any, ...]]:
    """Partition, offset, timestamp, key and value of all records."""
    return [
        tuple(row[name] for name in ("partition", "offset", "timestamp", "key", "value"))
        for _, rows in sorted(archive.archived().items())
        for row in rows
    ]


@pytest.fixture(scope="module")
def seen(archive: Site, standalone: Standalone) -> Seen:
    """The four runs, once for all tests of this file."""
    runs = Runs(archive, standalone)
    for run in (
        runs.interrupted_and_rebalanced,
        runs.terminated_without_an_executor,
        runs.killed,
        runs.caught_up,
    ):
        run()
    return runs.seen


def test_master_name_and_settings_are_those_of_the_command(seen: Seen, standalone: Standalone) -> None:
    """As the program sees them, the master, and the executors themselves."""
    assert (seen.inside["master"], seen.inside["name"]) == (standalone.url, "delayed flights")
    assert seen.inside["conf"]["spark.mine"] == "kept"
    assert seen.inside["conf"]["spark.executor.memory"] == f"{MEMORY}m"
    application = seen.application
    assert (application["id"], application["name"]) == (seen.inside["id"], "delayed flights")
    assert (application["cores"], application["memoryperexecutor"]) == (2, MEMORY)
    assert len(seen.executors) == 2
    assert all(f"-Xmx{MEMORY}M" in command for command in seen.executors)


@pytest.mark.parametrize(("run", "number"), [("interrupted", signal.SIGINT), ("terminated", signal.SIGTERM)])
def test_a_signal_under_spark_submit_commits_what_was_read(seen: Seen, run: str, number: int) -> None:
    """Ctrl-C, which JVM and program get, and a kill of the JVM alone: exit 0, partial files, no stack trace.

    Regression: the JVM ended at once, and its executors with it; tasks could not flush.
    """
    output = seen.outputs[run]
    assert seen.codes[run] == 0, output
    assert "Traceback" not in output
    assert seen.summaries[run]["signal"] == number
    assert seen.summaries[run]["records"] > 0
    assert any(offset % FLUSH_SIZE for offset in seen.committed[run].values())


def test_a_rebalance_ended_a_generation_in_the_middle(seen: Seen) -> None:
    """Of the first run; it went on with the next one."""
    before, after = seen.generations
    assert before < after


def test_a_killed_program_ends_spark_submit_and_the_next_one_goes_on(seen: Seen, archive: Site) -> None:
    """Kill -9: an exit code that says so, part of the topic committed, and all of it after the last run."""
    assert seen.codes["killed"] not in (0, None)
    rows = archive.folder.glob("rows/*.parquet")
    there = {int(file.stem): pq.read_metadata(file).num_rows for file in rows}
    killed, done = seen.committed["killed"], seen.committed["caught up"]
    assert sum(seen.committed["terminated"].values()) < sum(killed.values()) < sum(there.values())
    assert seen.codes["caught up"] == 0, seen.outputs["caught up"]
    assert done == there
    assert seen.summaries["caught up"]["rows"] == 7


def test_the_archive_is_what_spark_computes(seen: Seen, archive: Site) -> None:
    """Row by row: each delayed flight once, with its new column, and nothing else."""
    expected = pq.read_table(archive.folder / "expected").sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    rows = archived(archive)
    assert len(rows) == expected.num_rows > 20_000
    times = expected.column("timestamp").cast(pa.timestamp("ms", "UTC")).to_pylist()
    others = [expected.column(name).cast(kind).to_pylist() for name, kind in TYPES.items()]
    assert rows == list(zip(*others[:2], times, *others[2:], strict=True))
    assert json.loads(rows[0][-1]).keys() == {"carrier", "dep_delay", "hours"}
    assert archive.uploads_with_data() == []
