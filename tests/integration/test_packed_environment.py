from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
import venv
from pathlib import Path

import pyarrow as pa
import pytest

import sinksdk
from sinksdk import TopicPartition
from sinksdk.topics import write_records
from tests.integration.standalone import SPARK_HOME, Standalone
from tests.project.test_docs import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

SINK = """
import os
import sys
from pathlib import Path

from pydantic import Field, SecretStr
from sinksdk import ConnectorConfig, SinkConnector, SinkTask


class Config(ConnectorConfig):
    folder: Path = Field(alias="out.folder")
    password: SecretStr | None = None


class Task(SinkTask):
    def start(self, config):
        self.folder = config.folder
        self.secret = None if config.password is None else config.password.get_secret_value()

    def put(self, records):
        text = f"{sys.prefix} {os.getcwd()} {self.secret}"
        for record in records:
            (self.folder / f"{record.offset}").write_text(text)


class Sink(SinkConnector):
    config_class, task_class = Config, Task
"""
RECORDS = 5


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("environment")
    made, archive = folder / "environment", folder / "environment.tar.gz"
    venv.create(made, with_pip=True)
    pip = [made / "bin/python", "-m", "pip", "install", "--quiet", "--no-compile"]
    subprocess.run([*pip, f"{ROOT}[spark]"], check=True, timeout=500)
    (site,) = made.glob("lib/python*/site-packages")
    (site / "shipped_sink.py").write_text(SINK)
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(made, ".")
    return archive


@pytest.fixture
def here(tmp_path: Path) -> Path:
    rows = pa.table({"offset": range(RECORDS), "key": [b"k"] * RECORDS, "value": [b"v"] * RECORDS})
    write_records(tmp_path / "topics", TopicPartition("t", 0), rows)
    (tmp_path / "out").mkdir()
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver/shipped_sink.py").write_text(SINK)
    keys = {"connector.class": "shipped_sink:Sink", "topics": "t", "out.folder": str(tmp_path / "out")}
    keys["password"] = "${env:SINK_PASSWORD}"
    (tmp_path / "c.json").write_text(json.dumps({"name": "c", "config": keys}))
    return tmp_path


def run(here: Path, command: list[object], **variables: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "SINK_PASSWORD": "of-the-driver", **variables}
    env.pop("PYTHONPATH", None)
    return subprocess.run(
        [str(word) for word in command],
        cwd=here / "driver",
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def options(here: Path, standalone: Standalone) -> list[object]:
    return [
        *(here / "c.json", "--topic-directory", here / "topics", "--until-caught-up"),
        *("--store", f"sqlite:///{here}/store.sqlite", "--master", standalone.url),
        *("--conf", "spark.executor.memory=600m"),
    ]


def written(here: Path) -> set[str]:
    return {path.read_text() for path in (here / "out").iterdir()}


def test_tasks_run_in_the_packed_environment_that_spark_unpacks(
    environment: Path, here: Path, standalone: Standalone
) -> None:
    done = run(
        here,
        [
            *(sys.executable, "-m", "sinksdk", "run", *options(here, standalone)),
            *("--conf", f"spark.archives={environment}#environment"),
            *("--conf", "spark.executorEnv.SINK_PASSWORD=of-the-executors"),
        ],
        PYSPARK_PYTHON="./environment/bin/python",
    )
    assert done.returncode == 0, done.stderr
    (text,) = written(here)
    prefix, folder, secret = text.split(" ")
    assert Path(prefix) == Path(folder) / "environment"
    assert secret == "of-the-executors"
    assert (
        sinksdk.committed_offsets(f"sqlite:///{here}/store.sqlite", "c")[TopicPartition("t", 0)].offset
        == RECORDS
    )


PROGRAM = """
import sys
import sinksdk
summary = sinksdk.run(sys.argv[1], source=sys.argv[2], store=sys.argv[3], until_caught_up=True)
assert summary.records == 5, summary
"""


def test_spark_submit_ships_the_packed_environment(
    environment: Path, here: Path, standalone: Standalone
) -> None:
    (here / "driver/program.py").write_text(PROGRAM)
    done = run(
        here,
        [
            *(SPARK_HOME / "bin/spark-submit", "--master", standalone.url, "--executor-memory", "600m"),
            *("--archives", f"{environment}#environment"),
            *("--conf", "spark.executorEnv.SINK_PASSWORD=of-the-executors"),
            *(here / "driver/program.py", here / "c.json", here / "topics"),
            f"sqlite:///{here}/store.sqlite",
        ],
        PYSPARK_PYTHON="./environment/bin/python",
        PYSPARK_DRIVER_PYTHON=sys.executable,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (text,) = written(here)
    assert text.split(" ")[0].endswith("/environment")


def test_a_python_without_sinksdk_exits_2_with_one_sentence(
    here: Path, standalone: Standalone, tmp_path: Path
) -> None:
    venv.create(tmp_path / "bare", with_pip=False)
    done = run(
        here,
        [sys.executable, "-m", "sinksdk", "run", *options(here, standalone)],
        PYSPARK_PYTHON=str(tmp_path / "bare/bin/python"),
    )
    assert done.returncode == 2, done.stderr
    assert "has no module 'sinksdk'" in done.stderr or "has no module 'pyarrow'" in done.stderr, done.stderr
    assert str(tmp_path / "bare/bin/python") in done.stderr
    assert written(here) == set()


def test_an_interpreter_missing_on_the_hosts_is_named(here: Path, standalone: Standalone) -> None:
    done = run(
        here,
        [sys.executable, "-m", "sinksdk", "run", *options(here, standalone)],
        PYSPARK_PYTHON="./environment/bin/python",
    )
    assert done.returncode == 2, done.stderr
    assert "./environment/bin/python" in done.stderr
    assert "spark.archives" in done.stderr
