"""spark-submit on a standalone cluster, with a query: flights are archived as Spark itself computes them.

The first run loses an executor, is rebalanced and ends with a Ctrl-C; the last one catches up. In nightly
runs one in between is terminated, and the driver of another is killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.demo.play import write_topic
from sinksdk import TopicPartition
from sinksdk.control.herder import Herder
from sinksdk.store import open_store
from sinksdk.topics import write_records
from tests.integration.archive_site import Site, descendants, ended, site, wait_until
from tests.integration.standalone import SPARK_HOME, Standalone
from tests.project.test_docs import ROOT, fences

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

QUERY = next(fence.code for fence in fences(ROOT / "docs/transforms.md") if "hours" in fence.code)
MEMORY = 600  # MB
OPTIONS = [
    "--name",
    "delayed flights",
    "--executor-memory",
    f"{MEMORY}m",
    "--conf",
    "spark.scheduler.mode=FIFO",
]
FLUSH_SIZE, PARTITIONS = 250, 3
# The topic begins with one portion of the rows; each wait for a commit appends the next one.
PORTIONS = 6
TYPES = {"partition": pa.int32(), "offset": pa.int64(), "key": pa.binary(), "value": pa.binary()}


@dataclass
class Seen:
    inside: dict[str, Any] = field(default_factory=dict)
    application: dict[str, Any] = field(default_factory=dict)
    executors: list[str] = field(default_factory=list)
    summaries: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    committed: dict[str, dict[int, int]] = field(default_factory=dict)
    generations: list[int] = field(default_factory=list)


class Runs:
    def __init__(self, archive: Site, cluster: Standalone) -> None:
        self.archive, self.cluster, self.seen = archive, cluster, Seen()
        self._before = 0
        self._portions = portions_of(archive)
        self.grow()

    def start(self, *options: str, master: str | None = None) -> subprocess.Popen[str]:
        self._before = sum(self.archive.committed().values())
        program = Path(__file__).with_name("submitted_flights.py")
        command = [SPARK_HOME / "bin/spark-submit", "--master", master or self.cluster.url, *OPTIONS, program]
        arguments = [self.archive.config, self.archive.topics, self.archive.store, self.archive.folder]
        env = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": str(ROOT)}
        return self.archive.started([*map(str, (*command, *arguments)), *options], env)

    def grow(self, portions: int = 1) -> None:
        for portion in islice(self._portions, portions):
            for partition, records in portion.items():
                write_records(self.archive.topics, partition, records)

    def go_on(self, run: subprocess.Popen[str]) -> None:
        self.grow()
        before = self._before + FLUSH_SIZE
        wait_until(lambda: sum(self.archive.committed().values()) > before, run, "more was committed")
        self._before = sum(self.archive.committed().values())

    def end(self, run: subprocess.Popen[str], name: str) -> None:
        seen = self.seen
        seen.codes[name], seen.outputs[name] = ended(run)
        seen.committed[name] = self.archive.committed()
        lines = [line for line in seen.outputs[name].splitlines() if line.startswith('{"records"')]
        seen.summaries[name] = json.loads(lines[-1]) if lines else {}

    def executors(self) -> dict[int, str]:
        (application,) = self.cluster.await_applications(1)
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

    def disturbed_and_interrupted(self) -> None:
        run = self.start()
        self.go_on(run)
        self.seen.inside = json.loads((self.archive.folder / "inside.json").read_text())
        (self.seen.application,) = self.cluster.await_applications(1)
        self.seen.executors = list(self.executors().values())
        os.kill(min(self.executors()), signal.SIGKILL)
        self.go_on(run)
        before = self.generation()
        self.rebalance()
        wait_until(lambda: self.generation() > before, run, "another generation began")
        self.seen.generations = [before, self.generation()]
        self.go_on(run)
        os.killpg(run.pid, signal.SIGINT)
        self.end(run, "interrupted")

    def terminated(self) -> None:
        run = self.start()
        self.go_on(run)
        # Only the JVM gets the signal, because spark-submit has become the JVM.
        os.kill(run.pid, signal.SIGTERM)
        self.end(run, "terminated")

    def killed(self) -> None:
        run = self.start()
        self.go_on(run)
        drivers = [pid for pid, command in descendants(run.pid) if "submitted_flights.py" in command]
        os.kill(min(drivers), signal.SIGKILL)
        self.end(run, "killed")

    def caught_up(self) -> None:
        self.archive.s3.heal()
        self.grow(PORTIONS)
        self.end(self.start("--own-session", master="local[2]"), "caught up")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("submitted")) as made:
        made.topic = "flights"
        made.configure(records_sql=QUERY, tasks_max=2, flush_size=FLUSH_SIZE, offset_flush_interval_ms=500)
        made.s3.delays["CompleteMultipartUpload"] = 3.0
        write_topic(made.folder / "whole")
        write_rows(made)
        yield made


def whole_topic(archive: Site) -> Iterator[tuple[int, pa.Table]]:
    # The largest partitions are left out to save time; the others show the same.
    for partition in range(PARTITIONS):
        (file,) = (archive.folder / "whole").glob(f"*/partition={partition}/*.parquet")
        yield partition, pq.read_table(file, partitioning=None)


def portions_of(archive: Site) -> Iterator[dict[TopicPartition, pa.Table]]:
    whole = dict(whole_topic(archive))
    for number in range(PORTIONS):
        yield {
            TopicPartition("flights", partition): table.slice(
                begin := table.num_rows * number // PORTIONS,
                table.num_rows * (number + 1) // PORTIONS - begin,
            )
            for partition, table in whole.items()
        }


def write_rows(archive: Site) -> None:
    (archive.folder / "rows").mkdir()
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    for partition, table in whole_topic(archive):
        size = table.num_rows
        rows = table.set_column(3, "timestamp", table.column("timestamp").cast(pa.timestamp("us", "UTC")))
        rows = rows.append_column("topic", pa.repeat("flights", size))
        rows = rows.append_column("partition", pa.repeat(pa.scalar(partition, pa.int32()), size))
        rows = rows.append_column("timestampType", pa.repeat(pa.scalar(0, pa.int32()), size))
        rows = rows.append_column("headers", pa.nulls(size, headers))
        pq.write_table(rows, archive.folder / f"rows/{partition}.parquet")


def archived(archive: Site) -> list[tuple[Any, ...]]:
    return [
        tuple(row[name] for name in ("partition", "offset", "timestamp", "key", "value"))
        for _, rows in sorted(archive.archived().items())
        for row in rows
    ]


# Each run happens once for all tests of this file, in the order of the tests that need it.


@pytest.fixture(scope="module")
def runs(archive: Site, standalone: Standalone) -> Runs:
    return Runs(archive, standalone)


@pytest.fixture(scope="module")
def interrupted(runs: Runs) -> Seen:
    runs.disturbed_and_interrupted()
    return runs.seen


@pytest.fixture(scope="module")
def terminated(runs: Runs, interrupted: Seen) -> Seen:
    runs.terminated()
    return runs.seen


@pytest.fixture(scope="module")
def killed(runs: Runs, interrupted: Seen) -> Seen:
    runs.killed()
    return runs.seen


@pytest.fixture(scope="module")
def caught_up(runs: Runs, interrupted: Seen) -> Seen:
    runs.caught_up()
    return runs.seen


def test_master_name_and_settings_of_spark_submit_are_used(interrupted: Seen, standalone: Standalone) -> None:
    inside, application = interrupted.inside, interrupted.application
    assert (inside["master"], inside["name"]) == (standalone.url, "delayed flights")
    assert inside["conf"]["spark.scheduler.mode"] == "FIFO"
    assert inside["conf"]["spark.executor.memory"] == f"{MEMORY}m"
    assert inside["conf"]["spark.ui.enabled"] == "false"
    assert (application["id"], application["name"]) == (inside["id"], "delayed flights")
    assert (application["cores"], application["memoryperexecutor"]) == (2, MEMORY)
    assert len(interrupted.executors) == 2
    assert all(f"-Xmx{MEMORY}M" in command for command in interrupted.executors)


def test_spark_is_stopped_at_the_end_and_another_master_is_refused(
    interrupted: Seen, standalone: Standalone
) -> None:
    summary = interrupted.summaries["interrupted"]
    assert summary["is_active"] is False
    assert f"has the master {standalone.url}, but sinksdk the master local[7]" in summary["refused"]
    assert standalone.await_applications(0) == []


def test_a_ctrl_c_under_spark_submit_commits_read_records(interrupted: Seen) -> None:
    # Regression: the JVM ended at once with its executors, and tasks could not flush.
    assert_committed(interrupted, "interrupted", signal.SIGINT)


def test_a_rebalance_under_spark_submit_ends_a_generation(interrupted: Seen) -> None:
    before, after = interrupted.generations
    assert before < after


@pytest.mark.nightly
def test_a_signal_to_the_jvm_commits_read_records(terminated: Seen) -> None:
    assert_committed(terminated, "terminated", signal.SIGTERM)


def assert_committed(seen: Seen, run: str, number: int) -> None:
    output = seen.outputs[run]
    assert seen.codes[run] == 0, output
    assert "Traceback" not in output
    assert seen.summaries[run]["signal"] == number
    assert seen.summaries[run]["records"] > 0
    assert any(offset % FLUSH_SIZE for offset in seen.committed[run].values())


@pytest.mark.nightly
def test_spark_submit_ends_with_its_killed_program(killed: Seen) -> None:
    assert killed.codes["killed"] != 0
    before = killed.committed["interrupted"]
    assert sum(before.values()) < sum(killed.committed["killed"].values())


def test_the_next_run_reads_to_the_end(caught_up: Seen, archive: Site) -> None:
    # The last run uses a session that the program creates itself.
    rows = archive.folder.glob("rows/*.parquet")
    there = {int(file.stem): pq.read_metadata(file).num_rows for file in rows}
    assert sum(caught_up.committed["interrupted"].values()) < sum(there.values())
    assert caught_up.codes["caught up"] == 0, caught_up.outputs["caught up"]
    assert caught_up.committed["caught up"] == there
    assert caught_up.summaries["caught up"]["is_active"] is True


def test_the_archive_equals_the_result_of_spark(caught_up: Seen, archive: Site) -> None:
    expected = pq.read_table(archive.folder / "expected").sort_by(
        [("partition", "ascending"), ("offset", "ascending")]
    )
    rows = archived(archive)
    assert len(rows) == expected.num_rows > 10_000
    times = expected.column("timestamp").cast(pa.timestamp("ms", "UTC")).to_pylist()
    others = [expected.column(name).cast(kind).to_pylist() for name, kind in TYPES.items()]
    assert rows == list(zip(*others[:2], times, *others[2:], strict=True))
    assert json.loads(rows[0][-1]).keys() == {"carrier", "dep_delay", "hours"}
    assert archive.uploads_with_data() == []
