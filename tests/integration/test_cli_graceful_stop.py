from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from sinksdk import TopicPartition, committed_offsets
from sinksdk.store import open_store, table
from sinksdk.store.keys import task_count_key
from sinksdk.store.records import TaskCountRecord
from sinksdk.topics import write_records
from tests.helpers.warm_jvm import warm_jvm

pytestmark = pytest.mark.spark

PARTITIONS = 2
RECORDS = 200_000  # records of each partition: twenty Arrow batches
BATCH = 27_000  # records of a batch; RECORDS is not a multiple
NO_MATCH = "no topic with partitions matches 'topics.regex' yet"


class Bench:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.out.mkdir()
        shutil.copy(Path(__file__).with_name("line_sink.py"), folder)
        rows = pa.table({"offset": range(RECORDS), "key": [b"k"] * RECORDS, "value": [b"v"] * RECORDS})
        for number in range(PARTITIONS):
            write_records(folder / "topics", TopicPartition("t", number), rows)
        self._started: list[subprocess.Popen[str]] = []

    def start(
        self, *arguments: str, env: Mapping[str, str] | None = None, **config: object
    ) -> subprocess.Popen[str]:
        keys = {
            "connector.class": "line_sink:LineSink",
            "topics": "t",
            "tasks.max": PARTITIONS,
            "out.folder": str(self.out),
            "batch.size": BATCH,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        (self.folder / "lines.json").write_text(json.dumps({"name": "lines", "config": keys}))
        command = [sys.executable, "-m", "sinksdk", "run", "lines.json"]
        process = subprocess.Popen(
            [*command, "--topic-directory", "topics", "--master", "local[2]", *arguments],
            cwd=self.folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def run(self, *arguments: str, **config: object) -> tuple[int, str, str]:
        process = self.start(*arguments, env=warm_jvm().environment(), **config)
        out, err = process.communicate(timeout=180)
        return process.returncode, out, err

    def await_writing(self) -> None:
        wait_for(lambda: len(list(self.out.glob("*.txt"))) == PARTITIONS)

    def offsets(self, partition: int) -> list[int]:
        return [int(line) for line in (self.out / f"t-{partition}.txt").read_text().splitlines()]

    def committed(self) -> dict[int, int]:
        found = committed_offsets(f"sqlite:///{self.folder / 'sinksdk.sqlite'}", "lines")
        return {partition.partition: entry.offset for partition, entry in found.items()}

    def driver(self) -> str:
        with closing(open_store(f"sqlite:///{self.folder / 'sinksdk.sqlite'}")) as store:
            count = table.read(store, task_count_key("lines"), TaskCountRecord)
        return (count and count.value.driver) or ""

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def children_of(group: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.end()


@pytest.mark.extended
def test_a_run_until_caught_up_commits_all_records(bench: Bench) -> None:
    code, out, err = bench.run("--until-caught-up")

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == f"lines: store sqlite:///{bench.folder / 'sinksdk.sqlite'}, Spark on local[2]"
    assert lines[1] == "generation 1: 2 tasks, 2 partitions, 400,000 offsets to read"
    assert lines[-1].startswith("caught up: 400,000 records committed, 16 files (2.6 MB), ")
    assert "\x1b" not in out
    assert [bench.offsets(p) for p in range(PARTITIONS)] == [list(range(RECORDS))] * PARTITIONS
    assert bench.committed() == {0: RECORDS, 1: RECORDS}


@pytest.mark.parametrize(
    ("number", "to"),
    [
        pytest.param(signal.SIGINT, os.killpg, marks=pytest.mark.extended),
        pytest.param(signal.SIGTERM, os.killpg, marks=pytest.mark.nightly),
        (signal.SIGTERM, os.kill),
    ],
)
def test_a_signal_commits_partial_batches_and_the_next_run_resumes_after_them(
    bench: Bench, number: signal.Signals, to: Callable[[int, int], None]
) -> None:
    process = bench.start(pause_seconds=2)
    bench.await_writing()
    to(process.pid, number)
    out, err = process.communicate(timeout=60)

    assert (process.returncode, err) == (0, "")
    assert f"{number.name}: closing, partial batches are flushed and committed" in out
    assert "generation 1: closing, SHUTDOWN" in out
    assert out.splitlines()[-1].startswith("stopped: ")
    committed = bench.committed()
    assert all(0 < offset < RECORDS and offset % BATCH for offset in committed.values()), committed
    assert {p: len(bench.offsets(p)) for p in committed} == committed

    code, out, _ = bench.run("--until-caught-up")

    assert code == 0
    assert f"generation 2: 2 tasks, 2 partitions, {2 * RECORDS - sum(committed.values()):,} offsets" in out
    assert [bench.offsets(p) for p in range(PARTITIONS)] == [list(range(RECORDS))] * PARTITIONS


@pytest.mark.extended
def test_a_second_signal_stops_at_once_and_loses_nothing(bench: Bench) -> None:
    # The tasks hang, so without the second signal the run would end only after the graceful timeout, with
    # another exit code.
    process = bench.start(batch_size=5_000, hang_offset=15_000)
    bench.await_writing()
    wait_for((bench.out / "hanging").exists)
    os.killpg(process.pid, signal.SIGINT)
    # A signal that is already pending is not delivered twice.
    assert process.stdout
    assert any("SIGINT: closing" in line for line in process.stdout)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "stopped at once: the next run reads uncommitted records again" in err
    wait_for(lambda: not children_of(process.pid))

    code, _, _ = bench.run("--until-caught-up")

    assert code == 0
    assert bench.committed() == {0: RECORDS, 1: RECORDS}
    assert [sorted(set(bench.offsets(p))) for p in range(PARTITIONS)] == [list(range(RECORDS))] * PARTITIONS


@pytest.mark.extended
def test_a_signal_before_the_first_generation_stops_the_run_at_once(bench: Bench) -> None:
    process = bench.start(topics=None, topics_regex="nothing.*")
    assert process.stdout
    assert process.stdout.readline().startswith("lines: store ")
    time.sleep(1)
    os.kill(process.pid, signal.SIGTERM)

    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert [line for line in err.splitlines() if NO_MATCH not in line] == []
    assert "starting Spark" not in out


@pytest.mark.extended
def test_a_failing_task_exits_1_after_the_other_task_has_committed(bench: Bench) -> None:
    rows = pa.table({"offset": [RECORDS, RECORDS + 1], "key": [b"k"] * 2, "value": [b"v"] * 2})
    write_records(bench.folder / "topics", TopicPartition("t", 1), rows)

    # The healthy task has read some records by the time the other one fails; then it closes.
    options = {"poison_offset": RECORDS + 1, "restart_max_attempts": 0, "generation_max_ms": 0}
    code, out, err = bench.run("--until-caught-up", pause_seconds=0.2, **options)

    assert code == 1
    assert "t-1 failed (read up to offset 200,000): ValueError: offset 200001 is poison" in out
    message = next(line for line in err.splitlines() if line.startswith("error: "))
    assert "connector lines has FAILED: t-1 failed (read up to offset 200000)" in message
    assert message.endswith("offset 200001 is poison")
    assert "Traceback" not in err
    assert bench.committed()[0] == len(bench.offsets(0)) > 0
    assert out.splitlines()[-1].startswith("failed: ")


@pytest.mark.extended
def test_the_older_of_two_drivers_exits_3(bench: Bench) -> None:
    idle = {"topics": None, "topics_regex": "nothing.*"}
    older = bench.start(**idle)
    assert older.stdout
    assert older.stdout.readline().startswith("lines: store ")
    wait_for(lambda: f":{older.pid}#" in bench.driver())
    newer = bench.start(**idle)

    _, err = older.communicate(timeout=120)
    assert older.returncode == 3
    assert [line for line in err.splitlines() if NO_MATCH not in line] == [
        "error: connector lines: a newer driver has taken over"
    ]
    newer.terminate()
    newer.communicate(timeout=120)
    assert newer.returncode == 0
