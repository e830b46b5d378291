from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.helpers.ports import free_port

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).parent.parent.parent
RECORDS = 5_000

Follow = Callable[[str], str]


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    # The files of a clone that the commands use, with the environment that `make` would create.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (tmp_path / ".venv").symlink_to(sys.prefix)
    return tmp_path


@pytest.fixture
def follow(clone: Path) -> Iterator[Follow]:
    started: list[subprocess.Popen[str]] = []
    port = str(free_port())
    for configuration in (clone / "examples").glob("*.json"):
        configuration.write_text(configuration.read_text().replace("5555", port))

    def follow(page: str) -> str:
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", commands(ROOT / page).replace("5555", port)],
            cwd=clone,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        output, _ = process.communicate(timeout=500)
        assert process.returncode == 0, output
        return output

    yield follow
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # stop the server of a page whose commands do not stop it


def commands(page: Path) -> str:
    blocks = re.findall(r"^```bash\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).splitlines()
    return "\n".join(line for line in lines if not line.startswith("make ") and "outside" not in line)


def offsets_in(folder: Path) -> dict[int, list[int]]:
    return {
        partition: [
            json.loads(line)["offset"]
            for path in sorted(folder.glob(f"readings-{partition}+*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        for partition in (0, 1)
    }


EACH_ONCE = {partition: list(range(RECORDS)) for partition in (0, 1)}


def test_commands_of_the_readme_work_as_written(clone: Path, follow: Follow) -> None:
    output = follow("README.md")

    assert "it would start" in output
    assert offsets_in(clone / "build/lines") == EACH_ONCE


@pytest.mark.extended
def test_commands_of_getting_started_work_as_written(clone: Path, follow: Follow) -> None:
    output = follow("docs/getting-started.md")

    assert "10,000 records in 6 files of 2 topic partitions: each offset once" in output
    assert " ".join(output.split()).count("records are the same as in the topic directory build/topics") == 2
    assert not (clone / "build").exists()


@pytest.mark.extended
def test_code_of_run_from_python_works_as_written(clone: Path, follow: Follow) -> None:
    output = follow("docs/run-from-python.md")

    assert output.count(f"readings-0: {RECORDS} records") == 1
    assert output.count(f"readings-1: {RECORDS} records") == 1
    assert offsets_in(clone / "build/lines") == EACH_ONCE


@pytest.mark.extended
def test_code_of_write_a_connector_works_as_written(clone: Path, follow: Follow) -> None:
    output = follow("docs/write-a-connector.md")
    follow("docs/make-it-exactly-once.md")  # it continues with the topic of the first page

    assert '{"offset": 0, "value": {"sensor": "sensor-0", "celsius": 20}}' in output
    assert offsets_in(clone / "build/lines") == EACH_ONCE
    assert offsets_in(clone / "build/exactly-once") == EACH_ONCE
    assert all(path.suffix == ".jsonl" for path in (clone / "build/exactly-once").iterdir())


@pytest.mark.extended
def test_code_of_write_a_database_sink_works_as_written(follow: Follow) -> None:
    output = follow("docs/write-a-database-sink.md")

    assert "caught up: 10,000 records committed" in output
    for shown in texts("docs/write-a-database-sink.md")[:2]:
        assert shown in output
    assert "2 passed" in output


@pytest.mark.extended
def test_code_of_write_an_http_sink_works_as_written(follow: Follow) -> None:
    output = follow("docs/write-an-http-sink.md")

    assert output.count("caught up: 10,000 records committed") == 2
    for shown in texts("docs/write-an-http-sink.md")[:3]:
        assert shown in output
    assert "1 passed" in output


def texts(page: str) -> list[str]:
    return re.findall(r"^```text\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
