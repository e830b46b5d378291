from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.integration.standalone import Standalone
from tests.integration.test_frames import FILES, KILLED_SINK, PATIENCE, ROOT, ROWS, Place
from tests.integration.test_speculation import SPECULATION
from tests.store.postgres_server import PostgresServer

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def place(tmp_path: Path, postgres: PostgresServer) -> Place:
    made = Place(tmp_path)
    made.store = postgres.url(f"frames_{uuid.uuid4().hex}")
    made.add_files()
    (tmp_path / "flag").touch()
    return made


def run(place: Place, master: str, conf: dict[str, str], **keys: object) -> None:
    options = place.options(KILLED_SINK, kill_flag=place.folder / "flag", **keys)
    conf = {"spark.master": master, "spark.executor.memory": "512m", **conf}
    command = [sys.executable, "-m", "tests.integration.frame_query", str(place.folder)]
    done = subprocess.run(
        [*command, json.dumps(options), json.dumps(conf)],
        cwd=ROOT,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert not (place.folder / "flag").exists()
    place.assert_once(ROWS * FILES, kills=True)


@pytest.mark.parametrize("step", [pytest.param("put", marks=pytest.mark.nightly), "prepared"])
def test_rows_are_written_once_when_an_executor_is_killed(
    place: Place, standalone: Standalone, step: str
) -> None:
    run(place, standalone.url, {}, kill_at=step, kill_executor=True)


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["put", "prepared"])
def test_one_of_two_speculative_copies_is_committed(place: Place, standalone: Standalone, step: str) -> None:
    # The first copy stops for longer than the test takes, before or after it has prepared its file.
    run(place, standalone.url, SPECULATION, kill_at=step, stall_seconds=2 * PATIENCE)
