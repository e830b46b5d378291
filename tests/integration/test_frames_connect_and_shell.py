from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.test_frames import PATIENCE, ROOT, ROWS, Place

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.nightly]

OF_CONNECT = """
import json, sys
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.frame_query import start

folder, options = sys.argv[1], json.loads(sys.argv[2])
spark = SparkSession.builder.remote("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
assert "connect" in type(spark).__module__
from pathlib import Path
query = start(spark, Path(folder), options)
query.awaitTermination()
assert query.exception() is None
rows = spark.range(40, 80).selectExpr("cast(id AS string) AS value")
rows.write.format("sinksdk").options(**options).mode("append").save()
rows = spark.range(80, 120).selectExpr("cast(id AS string) AS value")
rows.writeTo("rows").using("sinksdk").options(**options).create()
try:
    rows.write.format("sinksdk").options(**{**options, "foldr": "x"}).mode("append").save()
except PySparkException as error:
    print("refused:", error)
spark.stop()
"""


def ended(command: list[str], text: str = "", folder: Path = ROOT) -> str:
    paths = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        command,
        input=text,
        cwd=folder,
        env={**os.environ, "PATH": paths, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_pyspark_shell_writes_dataframes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    lines = [
        f"options = {place.options()!r}",
        "rows = spark.range(100).selectExpr('cast(id AS string) AS value')",
        "rows.write.format('sinksdk').options(**options).mode('append').save()",
        "exit()",
    ]
    shell = [str(Path(sys.executable).parent / "pyspark"), "--master", "local[2]"]
    # The shell must be interactive, although its input is no terminal.
    os.environ["PYSPARK_DRIVER_PYTHON_OPTS"] = "-i"
    try:
        ended(shell, "\n".join(lines) + "\n", tmp_path)
    finally:
        del os.environ["PYSPARK_DRIVER_PYTHON_OPTS"]

    place.assert_once(100)


def test_spark_connect_writes_dataframes(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.add_files(1)
    assert ROWS == 40
    said = ended(
        [sys.executable, "-c", OF_CONNECT, str(tmp_path), json.dumps(place.options())], folder=tmp_path
    )

    place.assert_once(120)
    assert "option 'foldr' is not known to" in said
