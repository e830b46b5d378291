from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, descendants, ended, site, wait_until

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 60_000
DROPS_AND_MULTIPLIES = """
    -- every third one goes, every seventh comes three times, the last thousand go
    SELECT r.* EXCEPT (value), concat('v', offset) AS value
    FROM records AS r LATERAL VIEW explode(sequence(1, if(offset % 7 = 0, 3, 1))) AS copy
    WHERE offset % 3 > 0 AND offset < 59000
"""
EXPECTED = {offset: 3 if offset % 7 == 0 else 1 for offset in range(59_000) if offset % 3 > 0}


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        # With two commits a second, the kill comes before the end even on a fast machine.
        made.configure(records_sql=DROPS_AND_MULTIPLIES, flush_size=5_000, offset_flush_interval_ms=500)
        # More than the pipes can hold, so that reading takes as long as writing.
        made.produce(PARTITIONS, RECORDS, size=300)
        made.s3.delays["CompleteMultipartUpload"] = 0.15
        yield made


def in_the_middle(archive: Site) -> bool:
    return 10_000 <= sum(archive.committed().values()) < PARTITIONS * RECORDS


def past_spark(driver: subprocess.Popen[str]) -> int:
    # Columns bypass Spark in deleted files that the workers keep open.
    found = {}
    for pid, _ in descendants(driver.pid):
        with suppress(OSError):  # the process ended meanwhile
            for number in Path(f"/proc/{pid}/fd").iterdir():
                name, file = str(number.readlink()), number.stat()
                # Spark's folder for the application: the driver's, or that of an executor
                if ("/userFiles-" in name or "/app-" in name) and not file.st_nlink:
                    found[file.st_ino] = file.st_size
    return sum(found.values())


def assert_complete(archive: Site) -> None:
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    records = archive.archived()
    assert len(records) == PARTITIONS
    for rows in records.values():
        assert Counter(row["offset"] for row in rows) == EXPECTED
        assert all(row["value"] == b"v%d" % row["offset"] for row in rows)
    assert archive.uploads_with_data() == []
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(archive.config)]
    found = subprocess.run([*command, "--store", archive.store], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize(
    "whose",
    [
        pytest.param("driver", marks=pytest.mark.nightly),
        pytest.param("worker", id="one of the workers"),
        pytest.param("oldest worker", id="another worker", marks=pytest.mark.nightly),
        # test_spark_submit.py kills an executor in each CI run
        pytest.param("executor", marks=pytest.mark.nightly),
    ],
)
def test_a_transform_is_exactly_once_when_a_process_is_killed(archive: Site, whose: str) -> None:
    master = "local-cluster[2,1,1024]" if whose == "executor" else "local[2]"
    driver = archive.start("--until-caught-up", master=master)
    wait_until(lambda: in_the_middle(archive), driver, "some files were committed")
    wait_until(lambda: past_spark(driver) > 100_000, driver, "columns went past Spark")
    if whose == "driver":
        driver.kill()
        ended(driver)
        assert sum(archive.committed().values()) < PARTITIONS * RECORDS
        code, output = archive.run("--until-caught-up")
    elif whose == "executor":
        executors = [pid for pid, command in descendants(driver.pid) if "CoarseGrained" in command]
        os.kill(min(executors), signal.SIGKILL)
        code, output = ended(driver)
    else:
        workers = sorted(
            pid
            for pid, command in descendants(driver.pid)
            if "pyspark.worker" in command or "worker_daemon" in command
        )
        os.kill(workers[1] if whose == "oldest worker" else workers[-1], signal.SIGKILL)
        code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


def test_a_close_request_commits_read_records_without_a_broken_pipe(archive: Site) -> None:
    archive.configure(records_sql=DROPS_AND_MULTIPLIES, flush_size=50_000)
    archive.s3.delays.update(UploadPart=1.5, CreateMultipartUpload=0.5)
    driver = archive.start("--until-caught-up", "--conf", "spark.sql.execution.arrow.maxRecordsPerBatch=500")
    wait_until(lambda: "UploadPart" in archive.s3.operations, driver, "a part was sent")
    wait_until(lambda: past_spark(driver) > 100_000, driver, "columns went past Spark")
    os.killpg(driver.pid, signal.SIGTERM)
    code, output = ended(driver)

    assert code == 0, output
    assert "Traceback" not in output
    assert "Broken pipe" not in output
    committed = archive.committed()
    assert 0 < sum(committed.values()) < PARTITIONS * RECORDS, committed
    assert archive.uploads_with_data() == []

    archive.s3.delays.clear()
    code, output = archive.run("--until-caught-up")
    assert code == 0, output
    assert_complete(archive)


def test_an_unusable_transform_fails_the_connector_with_one_sentence(archive: Site) -> None:
    archive.configure(records_sql="SELECT * FROM records ORDER BY offset")
    code, output = archive.run("--until-caught-up")

    assert code == 2, output
    assert "'records.sql' needs Spark's operator Sort" in output
    assert archive.committed() == {}


def test_a_record_that_a_query_cannot_compute_fails_the_connector_at_once(archive: Site) -> None:
    archive.configure(
        records_sql="SELECT r.* EXCEPT (value), string(if(partition = 1 AND offset = 30000, "
        "CAST(concat('x', offset) AS BIGINT), offset)) AS value FROM records AS r"
    )
    code, output = archive.run("--until-caught-up")

    assert code == 1, output
    found = re.search(r"error: .*'records.sql' fails for a record of .*-1 from offset (\d+) on: (.*)", output)
    assert found, output
    assert int(found[1]) <= 30_000
    assert found[2].startswith("[CAST_INVALID_INPUT]")
    assert "generation 2:" not in output
