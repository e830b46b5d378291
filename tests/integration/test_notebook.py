from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat.v4
import pytest
from nbclient import NotebookClient

pytestmark = [
    pytest.mark.extended,
    pytest.mark.spark,
    pytest.mark.slow,
    # nbclient and jupyter_client cause these warnings
    pytest.mark.filterwarnings("default::DeprecationWarning", "default::ResourceWarning"),
]

ROOT = Path(__file__).parent.parent.parent
RECORDS = 5_000
CELSIUS = {offset: 20 + offset % 7 for offset in range(RECORDS)}
ROOMS = {"readings-0": "kitchen", "readings-1": "cellar"}

SETTINGS = """
import json
print(json.dumps([sorted(spark.sparkContext.getConf().getAll()), sorted(spark.conf.getAll.items()),
                  spark.sparkContext.applicationId, sorted(spark.sparkContext.getJobTags()), os.getcwd()]))
"""
INTERRUPTED = """
import json, os, signal, threading
from pathlib import Path
Path("build/interrupted").mkdir()
lines = {
    "name": "lines", "connector.class": "tests.integration.line_sink:LineSink", "topics": "readings", "tasks.max": 2,
    "out.folder": "build/interrupted", "batch.size": 1_000_000, "pause.seconds": 1.0, "max.poll.records": 100,
}
def interrupt():
    from sinksdk.control.herder import Herder
    from sinksdk.store import open_store
    herder, lines_position = Herder(open_store(where["store"])), 0
    while not lines_position:
        time.sleep(0.1)
        infos = {info.name: info for info in herder.infos(lambda name, error: None)}
        lines_position = any(p.position for p in infos["lines"].partitions) if "lines" in infos else 0
    os.killpg(os.getpgid(0), signal.SIGINT)  # what the button does: kernel, JVM and workers are one group
threading.Thread(target=interrupt, daemon=True).start()
summary = sinksdk.run(lines, **where)
print(json.dumps([summary.signal.name, {str(p): records for p, records in summary.partitions.items()}]))
"""
WRONG = {
    "key": 'sinksdk.run({**config, "tasks.max": "many"}, **where)',
    "topic": 'sinksdk.run({**config, "name": "w", "topics": "reedings", "missing.topic.grace.ms": 0}, **where)',
    "query": 'sinksdk.start({**config, "name": "w", "records.sql": "SELECT celsius FROM records"}, **where).wait()',
    "function": """
def broken(celsius):
    return celsius / 0
spark.udf.register("broken", broken, "int")
sinksdk.run({**config, "name": "w", "restart.max.attempts": 0,
             "records.sql": "SELECT * FROM records WHERE broken(offset) > 0"}, **where, until_caught_up=True)
""",
    "session": "spark.stop()\nsinksdk.run(config, **where)",
}


class Notebook:
    def __init__(self, client: NotebookClient) -> None:
        self._client = client

    def run(self, code: str) -> list[dict[str, Any]]:
        cell = nbformat.v4.new_code_cell(code)
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, len(self._client.nb.cells) - 1)
        found: list[dict[str, Any]] = cell.outputs
        return found


def printed(outputs: list[dict[str, Any]]) -> str:
    return "".join(
        out["text"] for out in outputs if out["output_type"] == "stream" and out["name"] == "stdout"
    )


def shown(outputs: list[dict[str, Any]]) -> dict[str, str]:
    found: dict[str, str] = next(out["data"] for out in outputs if out["output_type"] == "execute_result")
    return found


def pages_cells() -> list[str]:
    page = (ROOT / "docs/notebook.md").read_text()
    return re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("notebook")
    shutil.copytree(ROOT / "examples", made / "examples")
    return made


@pytest.fixture(scope="module")
def seen(folder: Path) -> Iterator[dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("IPYTHONDIR", str(folder / "ipython"))
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        subprocess.run(
            [sys.executable, "examples/make_topic.py", "build/topics"], check=True, capture_output=True
        )
        client = NotebookClient(
            nbformat.v4.new_notebook(), timeout=120, allow_errors=True, kernel_name="python3"
        )
        with client.setup_kernel(cwd=str(folder)):
            notebook = Notebook(client)
            session, *cells = pages_cells()
            notebook.run("import os")
            notebook.run(session)
            notebook.run("spark.range(1).count()")  # Spark SQL adds its warehouse to the settings
            before = notebook.run(SETTINGS)
            yield {
                "cells": [notebook.run(cell) for cell in cells],
                "before": before,
                "after": notebook.run(SETTINGS),
                "counted": notebook.run("spark.sql('SELECT * FROM rooms').count()"),
                "interrupted": notebook.run(INTERRUPTED),
                "wrong": {name: notebook.run(code) for name, code in WRONG.items()},
            }


def written(folder: Path) -> dict[str, dict[int, Any]]:
    found: dict[str, dict[int, Any]] = {}
    for path in sorted(folder.glob("*.jsonl")):
        values = found.setdefault(path.name.partition("+")[0], {})
        for line in map(json.loads, path.read_text().splitlines()):
            assert line["offset"] not in values
            values[line["offset"]] = line["value"]
    return found


def test_cells_of_the_notebook_page_write_the_results_of_the_query(
    seen: dict[str, Any], folder: Path
) -> None:
    errors = [out for outputs in seen["cells"] for out in outputs if out["output_type"] == "error"]
    assert errors == []
    assert written(folder / "build/warm") == {
        partition: {
            offset: {"room": room, "fahrenheit": celsius * 9 / 5 + 32}
            for offset, celsius in CELSIUS.items()
            if celsius > 21
        }
        for partition, room in ROOMS.items()
    }
    assert written(folder / "build/all") == {
        f"readings-{number}": {
            offset: {"sensor": f"sensor-{number}", "celsius": celsius} for offset, celsius in CELSIUS.items()
        }
        for number in range(2)
    }


def test_a_status_is_shown_as_a_table(seen: dict[str, Any]) -> None:
    tables = [
        shown(outputs)
        for outputs in seen["cells"]
        if any("connector warm-readings" in str(out.get("data", "")) for out in outputs)
    ]
    begun, caught_up = tables
    # On a fast machine, the cell runs in the second generation; in both generations the last files are
    # incomplete.
    assert re.search(r"RUNNING · generation [12] · lag [1-9]", begun["text/plain"])
    generation = re.search(r"generation (\d+) · lag 0", caught_up["text/plain"])
    assert generation is not None
    assert int(generation[1]) > 1
    assert "<td>readings-1</td><td>1</td><td>5,000</td><td>5,000</td><td>0</td>" in caught_up["text/html"]


def test_cells_of_a_notebook_print_no_log_lines(seen: dict[str, Any]) -> None:
    noise = [
        out["text"]
        for outputs in seen["cells"]
        for out in outputs
        if out["output_type"] == "stream" and out["name"] == "stderr"
    ]
    assert noise == []


def test_the_notebooks_spark_session_is_not_changed(seen: dict[str, Any]) -> None:
    assert printed(seen["before"])
    assert printed(seen["after"]) == printed(seen["before"])
    assert shown(seen["counted"])["text/plain"] == "2"


def test_an_interrupted_cell_commits_the_records_it_has_read(seen: dict[str, Any], folder: Path) -> None:
    signal, records = json.loads(printed(seen["interrupted"]))
    found = {
        path.stem: [int(line) for line in path.read_text().split()]
        for path in (folder / "build/interrupted").glob("*.txt")
    }
    assert signal == "SIGINT"
    assert 0 < sum(records.values()) < 2 * RECORDS
    assert found == {partition: list(range(count)) for partition, count in records.items() if count}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ("key", "ConfigException: 'tasks.max': input should be a valid integer"),
        ("topic", "MissingSourceTopicException: connector w: the topic directory"),
        ("query", "ConfigException: 'records.sql': [UNRESOLVED_COLUMN"),
        ("function", "the Spark job with 'records.sql' failed: ZeroDivisionError: division by zero"),
        ("session", "ConfigException: the given Spark session was stopped"),
    ],
)
def test_an_error_of_a_cell_shows_only_the_call_and_the_message(
    seen: dict[str, Any], wrong: str, says: str
) -> None:
    (error,) = [out for out in seen["wrong"][wrong] if out["output_type"] == "error"]
    text = "\n".join(error["traceback"])

    assert says in text
    assert all("ipykernel_" in line for line in text.splitlines() if line.startswith("  File"))
    assert len(text.splitlines()) <= 20
    if wrong == "function":
        assert "in broken" in text
