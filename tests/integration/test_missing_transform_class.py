from __future__ import annotations

import importlib
import json
import logging
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import sinksdk
from sinksdk import ConnectException, TopicPartition
from sinksdk.topics import write_records
from tests.integration.standalone import SPARK_HOME, Standalone
from tests.project.test_docs import ROOT

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

MODULE = "only_the_driver_has_it"
SOURCE = """
class Same:
    def apply(self, records):
        return records

    def test(self, records):
        return [True] * len(records)
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[str]:
    # Only this process has loaded the module, which is in no file: executors on another host could not import
    # it.
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / f"{MODULE}.py").write_text(SOURCE)
    sys.path.insert(0, str(folder))
    importlib.invalidate_caches()
    importlib.import_module(MODULE)
    shutil.rmtree(folder)
    yield MODULE
    sys.path.remove(str(folder))
    del sys.modules[MODULE]


@pytest.mark.parametrize("of", ["transforms", "predicates", "a transform with records.sql"])
def test_a_missing_transform_class_is_reported_with_alias_and_remedy(
    spark: SparkContext, module: str, tmp_path: Path, of: str, caplog: pytest.LogCaptureFixture
) -> None:
    write_records(
        tmp_path / "topics",
        TopicPartition("t", 0),
        pa.table({"offset": range(5), "key": [b"k"] * 5, "value": [b"v"] * 5}),
    )
    keys = {"transforms": "mine", "transforms.mine.type": f"{module}:Same"}
    name = "transforms.mine.type"
    if of == "predicates":
        keys = {"transforms": "f", "transforms.f.type": "Filter", "transforms.f.predicate": "mine"}
        keys |= {"predicates": "mine", "predicates.mine.type": f"{module}:Same"}
        name = "predicates.mine.type"
    elif of != "transforms":
        keys["records.sql"] = "SELECT * FROM records WHERE offset > 1"
    store = f"sqlite:///{tmp_path}/store.sqlite"
    with caplog.at_level(logging.INFO), pytest.raises(ConnectException) as raised:
        sinksdk.run(
            {
                "name": "c",
                "connector.class": "examples.folder_sink:FolderSink",
                "topics": "t",
                "folder": tmp_path / "out",
                **keys,
            },
            source=tmp_path / "topics",
            store=store,
            spark=SparkSession(spark),
            until_caught_up=True,
        )
    said = str(raised.value)
    assert said.startswith(
        f"connector c has FAILED: t-0 failed (read up to offset 0), and a restart does not help: '{name}': {module}:Same cannot be "
        f"imported: ModuleNotFoundError: No module named '{module}'; install its package wherever sinksdk runs, on the "
        f"executors, too, or send it to them (spark-submit --py-files"
    )
    assert len(said.splitlines()) == 1
    assert not [line for line in caplog.messages if "is opened again" in line or "Traceback" in line]
    assert sinksdk.committed_offsets(store, "c") == {}


PROGRAM = """
import sys
import sinksdk

folder = sys.argv[1]
summary = sinksdk.run(
    {
        "name": "c",
        "connector.class": "examples.folder_sink:FolderSink",
        "topics": "t",
        "folder": f"{folder}/out",
        "value.converter": "string",
        "transforms": "mine",
        "transforms.mine.type": "only_the_driver_has_it:Same",
    },
    source=f"{folder}/topics",
    store=f"sqlite:///{folder}/store.sqlite",
    until_caught_up=True,
)
print(summary.records, "records")
"""


@pytest.mark.nightly
def test_a_missing_transform_class_can_be_sent_with_py_files(standalone: Standalone, tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / f"{MODULE}.py").write_text(SOURCE)
    with zipfile.ZipFile(tmp_path / "own.zip", "w") as archive:
        archive.write(tmp_path / "own" / f"{MODULE}.py", f"{MODULE}.py")
    table = pa.table({"offset": range(5), "key": [b"k"] * 5, "value": [b"v"] * 5})
    write_records(tmp_path / "topics", TopicPartition("t", 0), table)
    config = {
        "connector.class": "examples.folder_sink:FolderSink",
        "topics": "t",
        "folder": str(tmp_path / "refused"),
        "transforms": "mine",
        "transforms.mine.type": f"{MODULE}:Same",
    }
    (tmp_path / "c.json").write_text(json.dumps({"name": "refused", "config": config}))
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)

    def ended(*command: str | Path, path: str) -> tuple[int, str]:
        env = {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **env},
            capture_output=True,
            text=True,
            check=False,
            timeout=180,
        )
        return done.returncode, done.stdout + done.stderr

    code, output = ended(
        *(
            sys.executable,
            "-m",
            "sinksdk",
            "run",
            tmp_path / "c.json",
            "--until-caught-up",
            "--master",
            standalone.url,
        ),
        *("--topic-directory", tmp_path / "topics", "--store", f"sqlite:///{tmp_path}/refused.sqlite"),
        path=f"{ROOT}{os.pathsep}{tmp_path / 'own'}",
    )
    assert code != 0, output
    assert f"'transforms.mine.type': {MODULE}:Same cannot be imported" in output
    assert "Traceback" not in output

    code, output = ended(
        *(SPARK_HOME / "bin/spark-submit", "--master", standalone.url, "--py-files", tmp_path / "own.zip"),
        *(program, tmp_path),
        path=str(ROOT),
    )
    assert code == 0, output
    assert "5 records" in output
