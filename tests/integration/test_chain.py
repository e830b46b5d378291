from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.topics.directory import write_records
from tests.integration.archive_site import Site, client, descendants, ended, site, wait_until

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 40_000
KAFKA = "org.apache.kafka.connect.transforms"
CHAIN = {
    "value_converter": "org.apache.kafka.connect.json.JsonConverter",
    "value_converter_schemas_enable": "false",
    "transforms": "drop,mask,where",
    "transforms_drop_type": f"{KAFKA}.Filter",
    "transforms_drop_predicate": "tombstone",
    "transforms_mask_type": f"{KAFKA}.MaskField$Value",
    "transforms_mask_fields": "card",
    "transforms_mask_replacement": "****",
    "transforms_where_type": f"{KAFKA}.InsertField$Value",
    "transforms_where_offset_field": "offset",
    "predicates": "tombstone",
    "predicates_tombstone_type": f"{KAFKA}.predicates.RecordIsTombstone",
}


def value_of(offset: int) -> bytes | None:
    is_tombstone = offset % 3 == 0 or offset >= RECORDS - 1_000
    return None if is_tombstone else json.dumps({"n": offset, "card": f"4711-{offset}"}).encode()


def expected(offset: int) -> bytes:
    return json.dumps({"n": offset, "card": "****", "offset": offset}, separators=(",", ":")).encode()


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=2_500, offset_flush_interval_ms=500, **CHAIN)
        for partition in range(PARTITIONS):
            table = pa.table(
                {
                    "key": pa.array([b"k"] * RECORDS, pa.binary()),
                    "value": pa.array([value_of(offset) for offset in range(RECORDS)], pa.binary()),
                    "offset": pa.array(range(RECORDS), pa.int64()),
                    "timestamp": pa.array([1_700_000_000_000] * RECORDS, pa.timestamp("ms", tz="UTC")),
                }
            )
            write_records(made.topics, TopicPartition(made.topic, partition), table)
        # A fast machine would otherwise be done before the kill.
        made.s3.delays["CompleteMultipartUpload"] = 1.0
        yield made


def test_transform_chain_is_exactly_once_if_a_worker_is_killed(archive: Site) -> None:
    driver = archive.start("--until-caught-up")
    everything = PARTITIONS * RECORDS
    wait_until(lambda: 10_000 <= sum(archive.committed().values()) < everything, driver, "some was committed")
    workers = [pid for pid, command in descendants(driver.pid) if "pyspark.worker" in command]
    workers = workers or [pid for pid, command in descendants(driver.pid) if "worker_daemon" in command]
    os.kill(max(workers), signal.SIGKILL)
    archive.s3.delays.clear()
    code, output = ended(driver)

    assert code == 0, output
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    rows: dict[int, list[tuple[int, bytes]]] = {}
    s3 = client(archive.endpoint)
    for item in s3.list_objects_v2(Bucket=archive.bucket)["Contents"]:
        if item["Key"].endswith(".avro"):
            body = s3.get_object(Bucket=archive.bucket, Key=item["Key"])["Body"].read()
            for record in fastavro.reader(io.BytesIO(body)):
                rows.setdefault(record["partition"], []).append((record["offset"], record["value"]))
    wanted = [(offset, expected(offset)) for offset in range(RECORDS) if value_of(offset) is not None]
    assert {partition: sorted(found) for partition, found in rows.items()} == dict.fromkeys(
        range(PARTITIONS), wanted
    )
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(archive.config)]
    found = subprocess.run([*command, "--store", archive.store], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
