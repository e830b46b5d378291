from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.kafka_connect.measure import Measured
from benchmarks.kafka_connect.processes import Process, cpu_seconds, memory, running, tree
from benchmarks.kafka_connect.rows import (
    Parts,
    files,
    fixed,
    memory_rows,
    profile_rows,
    rebalance_rows,
    slope,
    slope_rows,
    start_rows,
    topic_rows,
)
from benchmarks.kafka_connect.worker import Consumed

TICKS = os.sysconf("SC_CLK_TCK")


def stat(pid: int, name: str, parent: int, cpu: tuple[int, int, int, int]) -> str:
    numbers = ["S", str(parent), *["0"] * 9, *map(str, cpu), *["0"] * 35]
    return f"{pid} ({name}) {' '.join(numbers)}\n"


def measured(records: int, *, java: float = 0.0, python: float = 0.0, **other: int) -> Measured:
    return Measured(
        records,
        seconds=2.0,
        cpu={"java": java, "python": python},
        peak=other.get("peak", 0),
        read=other.get("read", records),
        files=[10_000_000, 30_000_000],
    )


def test_cpu_includes_children_that_were_waited_for() -> None:
    process = Process.parse(stat(7, "java", 1, (TICKS, 2 * TICKS, 4 * TICKS, 8 * TICKS)))
    assert process == Process(7, parent=1, name="java", cpu=15.0)


def test_name_may_hold_anything() -> None:
    process = Process.parse(stat(7, "a) S 9 (b", 1, (TICKS, 0, 0, 0)))
    assert (process.name, process.parent, process.cpu) == ("a) S 9 (b", 1, 1.0)


def test_tree_contains_all_descendants() -> None:
    parents = {1: 0, 2: 1, 3: 2, 4: 3, 5: 1}
    processes = {pid: Process(pid, parent, "x", 1.0) for pid, parent in parents.items()}
    assert sorted(process.pid for process in tree(2, processes)) == [2, 3, 4]


def test_tree_of_an_ended_process_is_empty() -> None:
    assert tree(2, {3: Process(3, 2, "x", 1.0)}) == []


def test_ended_child_still_counts() -> None:
    burn = "import time\nend = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    wait_for = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {burn!r}], check=True)"
    parent_of_an_ended = f"{wait_for}\nprint('ended', flush=True)\nsys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", parent_of_an_ended], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "ended\n"
        assert len(tree(parent.pid, running())) == 1
        used = sum(cpu_seconds(parent.pid).values())
        parent.communicate()
    assert used >= 0.5


def test_own_process_is_running() -> None:
    assert running()[os.getpid()].parent == os.getppid()
    assert memory(os.getpid()) > 1_000_000


def test_consumer_without_consumed_records(tmp_path: Path) -> None:
    (tmp_path / "consumer").touch()
    assert Consumed.read(tmp_path / "consumer").records == 0


def test_consumed_is_big_endian(tmp_path: Path) -> None:
    numbers = (5, 1_500, 2_250)
    (tmp_path / "consumer").write_bytes(b"".join(number.to_bytes(8) for number in numbers))
    assert Consumed.read(tmp_path / "consumer") == Consumed(5, first=1.5, last=2.25)


def test_topic_rows_have_ratios_of_the_rounds() -> None:
    ours = [measured(1_000_000, java=1.0), measured(1_000_000, java=1.0), measured(1_000_000, java=10.0)]
    peer = [measured(1_000_000, java=6.0), measured(1_000_000, java=7.0), measured(1_000_000, java=10.0)]
    *sides, cpu, speed = topic_rows("200 B, null", {"lean sink": peer, "sinksdk": ours}, 1)
    assert [row.measured for row in sides] == [
        "500 k records/s, 7.0 CPU s/M, 2 files of 20.0 MB",
        "500 k records/s, 1.0 CPU s/M, 2 files of 20.0 MB",
    ]
    assert (cpu.against, cpu.is_met) == ("6.00 x", True)
    assert (speed.against, speed.is_met) == ("1.00 x", False)


def test_missed_target_is_reported() -> None:
    rounds = {"lean sink": [measured(1_000, java=2.4)], "sinksdk": [measured(1_000, java=1.0)]}
    cpu, _speed = topic_rows("", rounds, 0)[-2:]
    assert not cpu.is_met


def test_profile_adds_up() -> None:
    counting, reading = [measured(1_000_000, java=1.0)], [measured(1_000_000, java=0.5, python=1.5)]
    whole, parts = [measured(1_000_000, java=0.5, python=7.5)], Parts(encoding=1.0, codec=2.0, sending=1.0)
    *shares, read, floor = profile_rows("1 KB", counting, reading, whole, parts)
    assert [row.against for row in shares] == ["25%", "12%", "25%", "12%", "25%"]
    assert (read.against, read.is_met) == ("2.00 x", False)
    assert (floor.measured, floor.against, floor.is_met) == ("5.00, 8.00 CPU s/M", "0.62 x", True)


def test_slope_excludes_the_fixed_cost_of_a_run() -> None:
    short, long = measured(1_000_000, java=5.0), measured(3_000_000, java=9.0)
    assert slope(short, long) == pytest.approx(2.0)
    assert fixed(long, 2.0) == pytest.approx(3.0)
    (row,) = slope_rows("200 B", {"sinksdk": [short]}, {"sinksdk": [long]})
    assert row.measured == "2.0 CPU s/M, and 3.0 CPU s a run"


def test_memory_is_the_largest_of_all() -> None:
    (row,) = memory_rows({"sinksdk": [measured(1, peak=1_000_000), measured(1, peak=3_000_000)]})
    assert row.measured == "3 MB"


def test_memory_is_compared_with_icebergs_sink() -> None:
    peaks = {"Iceberg's sink": [measured(1, peak=2_000_000)], "sinksdk": [measured(1, peak=3_000_000)]}
    _theirs, ours = memory_rows(peaks)
    assert (ours.against, ours.is_met) == ("1.50 x", False)


def test_records_read_beyond_the_topic_count_as_read_twice() -> None:
    (row,) = rebalance_rows({"x": measured(1_000, read=1_010)}, {"x": measured(1_000, read=1_500)})
    assert row.measured == "10 without, 500 with a forced rebalance"
    assert row.against == "50% of all"


def test_start_is_reported_separately() -> None:
    (row,) = start_rows({"x": 3.0}, {"x": measured(1_600_000, java=4.0)})
    assert row.measured == "3.0 CPU s until ready, 4.0 for the first 1.6 M records"


def test_a_run_without_files_is_reported() -> None:
    assert files(Measured(1, 1.0, {}, 0, 1, [])) == "no files"
