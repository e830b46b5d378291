from __future__ import annotations

import io
import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from sinksdk import TopicPartition, committed_offsets
from sinksdk.topics import write_records
from tests.helpers.needs import missing
from tests.helpers.registry_server import RegistryServer
from tests.integration.row_sink import rows_in
from tests.kafka.maven import MavenError, copy_jars
from tests.project.test_docs import ROOT, fences

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 500
SCHEMA = {
    "type": "record",
    "name": "Flight",
    "fields": [{"name": "carrier", "type": "string"}, {"name": "dep_delay", "type": ["null", "double"]}],
}


def flight(partition: int, offset: int) -> dict[str, object]:
    return {
        "carrier": "ABC"[offset % 3] + str(partition),
        "dep_delay": None if offset % 5 == 0 else offset / 4,
    }


def framed(schema_id: int, value: dict[str, object]) -> bytes:
    datum = io.BytesIO()
    fastavro.schemaless_writer(datum, fastavro.parse_schema(SCHEMA), value)
    return b"\0" + struct.pack(">i", schema_id) + datum.getvalue()


def delayed(partition: int) -> dict[int, dict[str, object]]:
    found = {offset: flight(partition, offset) for offset in range(RECORDS)}
    return {offset: value for offset, value in found.items() if (value["dep_delay"] or 0) > 60}


def spark_avro() -> Path:
    try:
        (jar,) = copy_jars(Path(__file__).with_name("spark_avro.xml"), "spark-avro-4.2.0")
    except MavenError as error:
        missing("spark-avro", f"its jar comes from Maven Central: {error}")
    return jar


def test_from_avro_reads_records_of_registry_serializers(tmp_path: Path) -> None:
    with RegistryServer().running() as registry:
        schema_id = registry.register("flights-value", json.dumps(SCHEMA))
        for number in range(PARTITIONS):
            values = [framed(schema_id, flight(number, offset)) for offset in range(RECORDS)]
            rows = pa.table({"offset": range(RECORDS), "key": [b"k"] * RECORDS, "value": values})
            write_records(tmp_path / "topics", TopicPartition("flights", number), rows)
        (recipe,) = (f.code for f in fences(ROOT / "docs/transforms.md") if "def departures" in f.code)
        assert "http://registry.example:8081" in recipe
        (tmp_path / "recipe.py").write_text(recipe.replace("http://registry.example:8081", registry.url))
        (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
        done = subprocess.run(
            [
                *(sys.executable, ROOT / "tests/integration/avro_session.py"),
                *(tmp_path, spark_avro(), tmp_path / "schema.json"),
            ],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYSPARK_PYTHON": sys.executable,
                "PYTHONPATH": f"{ROOT}:{tmp_path}",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr

    everything = {TopicPartition("flights", number): RECORDS for number in range(PARTITIONS)}
    for name in ("query", "function"):
        committed = committed_offsets(f"sqlite:///{tmp_path}/store.sqlite", name)
        assert {p: offset.offset for p, offset in committed.items()} == everything
    flights = {f"flights-{number}": delayed(number) for number in range(PARTITIONS)}
    assert {
        partition: {row[0]: row[2] for row in rows} for partition, rows in rows_in(tmp_path / "query").items()
    } == {
        partition: {offset: f"{value['carrier']} {value['dep_delay']}" for offset, value in found.items()}
        for partition, found in flights.items()
    }
    assert {
        partition: [(row[0], json.loads(row[2])) for row in rows]
        for partition, rows in rows_in(tmp_path / "function").items()
    } == {partition: list(found.items()) for partition, found in flights.items()}
