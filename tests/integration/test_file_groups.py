from __future__ import annotations

import io
import json
import os
import re
import signal
import struct
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import fastavro
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from sinksdk import TopicPartition
from sinksdk.topics import write_records
from tests.helpers.registry_server import RegistryServer
from tests.integration.archive_site import Site, client, descendants, ended, site, wait_until

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

HOUR = 3_600_000
BEGIN = 1_700_000_000_000 // HOUR * HOUR
PARTITIONS = 2
BY_HOUR = {"partitioner_class": "HourlyPartitioner", "timestamp_extractor": "Record"}
START = re.compile(r"year=(.*)/[^/]*\+(\d+)\+(\d+)\.avro")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        yield made


class LateData:
    def __init__(self, archive: Site, records: int, hours: int, size: int = 200) -> None:
        dice = np.random.default_rng(7)
        self._archive = archive
        self._records = records
        self._hours: list[npt.NDArray[np.int64]] = []
        self._values: list[npt.NDArray[np.uint8]] = []
        for partition in range(PARTITIONS):
            self._hours.append(dice.integers(0, hours, records))
            self._values.append(dice.integers(0, 256, (records, size), dtype=np.uint8))
            table = pa.table(
                {
                    "offset": np.arange(records),
                    "key": pa.nulls(records, pa.binary()),
                    "value": pa.array([row.tobytes() for row in self._values[-1]], pa.binary()),
                    "timestamp": pa.array(BEGIN + HOUR * self._hours[-1], pa.timestamp("ms", tz="UTC")),
                }
            )
            write_records(archive.topics, TopicPartition(archive.topic, partition), table)

    def check(self, flush_size: int | None) -> None:
        # An hour has one file of each partition and flush, unless a group was withdrawn (None).
        assert self._archive.committed() == dict.fromkeys(range(PARTITIONS), self._records)
        seen = [np.zeros(self._records, np.int64) for _ in range(PARTITIONS)]
        files = Counter[tuple[str, int, int]]()
        for key, body in objects(self._archive):
            folder, partition, start = place_of(key)
            files[folder, partition, start // (flush_size or self._records)] += 1
            rows = list(fastavro.reader(io.BytesIO(body)))
            offsets = np.array([row["offset"] for row in rows])
            assert (np.diff(offsets) > 0).all()
            seen[partition][offsets] += 1
            values = np.frombuffer(b"".join(row["value"] for row in rows), np.uint8)
            assert (values.reshape(len(rows), -1) == self._values[partition][offsets]).all(), key
            (hour,) = set(self._hours[partition][offsets].tolist())
            moment = time.gmtime((BEGIN + hour * HOUR) // 1000)
            assert folder == time.strftime("%Y/month=%m/day=%d/hour=%H", moment)
        assert all((times == 1).all() for times in seen)
        assert flush_size is None or set(files.values()) == {1}
        assert self._archive.uploads_with_data() == []
        code, output = self._archive.verify()
        assert code == 0, output


def place_of(key: str) -> tuple[str, int, int]:
    found = START.search(key)
    assert found is not None, key
    return found[1], int(found[2]), int(found[3])


def objects(archive: Site) -> Iterator[tuple[str, bytes]]:
    s3 = client(archive.endpoint)
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=archive.bucket):
        for item in page.get("Contents", []):
            if item["Key"].endswith(".avro"):
                yield item["Key"], s3.get_object(Bucket=archive.bucket, Key=item["Key"])["Body"].read()


def visible(archive: Site) -> int:
    listed = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket).get("Contents", [])
    return sum(item["Key"].endswith(".avro") for item in listed)


def workers(driver: subprocess.Popen[str]) -> list[int]:
    return [
        pid for pid, command in descendants(driver.pid) if "worker_daemon" in command or "pyspark." in command
    ]


def kill_worker(driver: subprocess.Popen[str]) -> None:
    os.kill(max(workers(driver)), signal.SIGKILL)


def kill_all(driver: subprocess.Popen[str]) -> None:
    pids = [driver.pid, *(pid for pid, _ in descendants(driver.pid))]
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    ended(driver)


class Peak:
    def __init__(self, site: Site) -> None:
        self.bytes = 0
        self._site = site
        self._ends = threading.Event()

    @contextmanager
    def watched(self) -> Iterator[None]:
        thread = threading.Thread(target=self._watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ends.set()
            thread.join()

    def _watch(self) -> None:
        while not self._ends.wait(0.1):
            for process in self._site.processes:
                for pid, command in descendants(process.pid):
                    if "worker_daemon" in command:
                        self._look(Path(f"/proc/{pid}/status"))

    def _look(self, status: Path) -> None:
        try:
            found = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        except OSError:
            return  # the process ended meanwhile
        if found is not None:
            self.bytes = max(self.bytes, int(found[1]) * 1024)


@pytest.mark.nightly
def test_late_data_of_500_hours_needs_little_memory_and_few_files(archive: Site) -> None:
    # A worker is killed while parts are sent and while a group is published, then everything while the next
    # group is collected.
    records, flush_size = 500_000, 250_000
    data = LateData(archive, records, hours=500)
    archive.configure(**BY_HOUR, tasks_max=1, flush_size=flush_size)
    peak = Peak(archive)
    with peak.watched():
        driver = archive.start("--until-caught-up")
        wait_until(lambda: archive.s3.operations.count("UploadPart") > 100, driver, "parts were sent")
        kill_worker(driver)
        wait_until(lambda: visible(archive) > 50, driver, "a part of a group was published")
        kill_worker(driver)
        wait_until(lambda: len(archive.committed()) == PARTITIONS, driver, "both partitions had a commit")
        kill_all(driver)
        assert sum(archive.committed().values()) < PARTITIONS * records

        code, output = archive.run("--until-caught-up")

    assert code == 0, output
    data.check(flush_size)
    assert 100e6 < peak.bytes < 400e6


@pytest.mark.nightly
@pytest.mark.parametrize("is_expired", [True, False])
def test_a_half_published_group_is_published_or_withdrawn(archive: Site, *, is_expired: bool) -> None:
    # If an upload has expired, the other files of its group are not published: their records are archived
    # again, without the visible ones.
    flush_size = 1_500
    data = LateData(archive, 2 * flush_size, hours=30, size=20)
    archive.configure(**BY_HOUR, flush_size=flush_size)
    archive.s3.delays["CompleteMultipartUpload"] = 1.0
    driver = archive.start("--until-caught-up")
    wait_until(lambda: visible(archive) > 0, driver, "a file was published")
    kill_all(driver)
    archive.s3.heal()
    archive.s3.settle()
    begun = {
        place_of(key)[1] for key, _ in objects(archive)
    }  # partitions whose first group is half published
    assert begun <= archive.committed().keys()
    pending = [
        upload
        for upload in client(archive.endpoint).list_multipart_uploads(Bucket=archive.bucket)["Uploads"]
        if place_of(upload["Key"])[1] in begun and place_of(upload["Key"])[2] < flush_size
    ]
    assert pending
    if is_expired:
        client(archive.endpoint).abort_multipart_upload(
            Bucket=archive.bucket, Key=pending[0]["Key"], UploadId=pending[0]["UploadId"]
        )

    code, output = archive.run("--until-caught-up")

    assert code == 0, output
    assert ("disappeared before it was published" in output) == is_expired, output
    data.check(None if is_expired else flush_size)


def test_ten_schemas_record_by_record_have_one_file_each(archive: Site) -> None:
    flush_size, flushes = 2_000, 3
    schemas = [
        {"type": "record", "name": f"Order{number}", "fields": [{"name": f"of{number}", "type": "long"}]}
        for number in range(10)
    ]
    parsed = [fastavro.parse_schema(schema) for schema in schemas]
    with RegistryServer().running() as server:
        ids = [server.register("orders-value", json.dumps(schema)) for schema in schemas]

        def framed(offset: int) -> bytes:
            datum = io.BytesIO(struct.pack(">bI", 0, ids[offset % 10]))
            datum.seek(0, io.SEEK_END)
            fastavro.schemaless_writer(datum, parsed[offset % 10], {f"of{offset % 10}": offset})
            return datum.getvalue()

        offsets = range(flush_size * flushes)
        table = pa.table(
            {
                "offset": offsets,
                "key": pa.nulls(len(offsets), pa.binary()),
                "value": pa.array([framed(offset) for offset in offsets], pa.binary()),
                "timestamp": pa.array(offsets, pa.timestamp("ms", "UTC")),
            }
        )
        write_records(archive.topics, TopicPartition(archive.topic, 0), table)
        archive.configure(
            archive_content="value",
            value_converter="avro",
            value_converter_schema_registry_url=server.url,
            flush_size=flush_size,
        )
        code, output = archive.run("--until-caught-up")

    assert code == 0, output
    files = Counter[tuple[str, int]]()
    found = []
    for _, body in objects(archive):
        reader = fastavro.reader(io.BytesIO(body))
        values = [value for row in reader for value in row.values()]
        name = reader.writer_schema["name"]
        assert {f"Order{value % 10}" for value in values} == {name}
        files[name, values[0] // flush_size] += 1
        found += values
    assert sorted(found) == list(offsets)
    assert files == dict.fromkeys(((f"Order{n}", flush) for n in range(10) for flush in range(flushes)), 1)
