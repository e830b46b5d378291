from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.topics import write_records

pytestmark = [pytest.mark.extended, pytest.mark.spark]

ROOT = Path(__file__).parent.parent.parent
PARTITIONS, RECORDS = 2, 100_000  # records of each partition: ten Arrow batches


def write_topic(folder: Path, records: int) -> None:
    for number in range(PARTITIONS):
        rows = pa.table({"offset": range(records), "key": [b"k"] * records, "value": [b"v"] * records})
        write_records(folder / "topics", TopicPartition("t", number), rows)


def written(folder: Path) -> dict[str, list[int]]:
    return {p.stem: [int(line) for line in p.read_text().split()] for p in (folder / "out").glob("*.txt")}


def environment() -> dict[str, str]:
    return {**os.environ, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("own-session")
    write_topic(made, RECORDS)
    return made


@pytest.fixture(scope="module")
def seen(folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.own_session", str(folder)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_the_users_spark_session_is_used_and_not_changed(seen: dict[str, Any]) -> None:
    assert seen["after"] == seen["before"]
    assert seen["before"]["properties"] == {"spark.scheduler.pool": "mine", "mine": "kept"}
    assert seen["counted"] == 7


def test_a_rebalance_and_a_stop_in_mid_file_commit_read_records(seen: dict[str, Any]) -> None:
    rebalanced, stopped = sum(seen["rebalanced"].values()), sum(seen["stopped"].values())

    assert 0 < rebalanced < stopped < PARTITIONS * RECORDS
    assert sum(seen["summary"].values()) == stopped
    assert seen["files"] >= 2
    assert seen["state"] == "UNASSIGNED"


def test_an_event_loop_keeps_running_next_to_a_connector(seen: dict[str, Any]) -> None:
    assert seen["ticks"] > 50


def test_all_records_are_written_exactly_once_after_rebalance_and_stop(
    seen: dict[str, Any], folder: Path
) -> None:
    assert seen["caught_up"] == {f"t-{number}": RECORDS for number in range(PARTITIONS)}
    assert seen["rest"] == PARTITIONS * RECORDS - sum(seen["stopped"].values())
    assert written(folder) == {f"t-{number}": list(range(RECORDS)) for number in range(PARTITIONS)}
