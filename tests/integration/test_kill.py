from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, descendants, ended, site, wait_until
from tests.integration.standalone import Standalone

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 4, 30_000
TOTAL = PARTITIONS * RECORDS


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.produce(PARTITIONS, RECORDS)
        made.s3.delays["CompleteMultipartUpload"] = 1.0  # a fast machine would be done before the kill
        yield made


def in_the_middle(archive: Site) -> bool:
    return 20_000 <= sum(archive.committed().values()) < TOTAL


def assert_complete(archive: Site) -> None:
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    code, output = archive.verify()
    assert code == 0, output
    assert f"{TOTAL:,}" in output
    assert archive.uploads_with_data() == []


def test_the_successor_settles_all_tokens_of_a_killed_driver(archive: Site) -> None:
    driver = archive.start("--until-caught-up")
    wait_until(lambda: in_the_middle(archive), driver, "some files were committed")
    driver.kill()
    archive.s3.delays.clear()
    ended(driver)
    assert sum(archive.committed().values()) < TOTAL

    code, output = archive.run("--until-caught-up")

    assert code == 0, output
    assert_complete(archive)


def test_a_killed_python_worker_loses_no_record(archive: Site) -> None:
    driver = archive.start("--until-caught-up")
    wait_until(lambda: in_the_middle(archive), driver, "some files were committed")
    workers = [pid for pid, command in descendants(driver.pid) if "pyspark.worker" in command]
    os.kill(max(workers), signal.SIGKILL)  # the oldest of these processes is the daemon
    archive.s3.delays.clear()

    code, output = ended(driver)

    assert code == 0, output
    assert f"caught up: {TOTAL:,} records committed" in output
    assert_complete(archive)


def test_a_killed_executor_loses_no_record(archive: Site) -> None:
    driver = archive.start("--until-caught-up", master="local-cluster[2,1,1024]")
    wait_until(lambda: in_the_middle(archive), driver, "some files were committed")
    executors = [pid for pid, command in descendants(driver.pid) if "CoarseGrainedExecutorBackend" in command]
    os.kill(executors[0], signal.SIGKILL)
    archive.s3.delays.clear()

    code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.extended
@pytest.mark.parametrize("number", [pytest.param(signal.SIGINT, marks=pytest.mark.nightly), signal.SIGTERM])
def test_a_signal_commits_partial_files_and_the_next_run_resumes_after_them(
    archive: Site, number: int
) -> None:
    archive.configure(flush_size=50_000, generation_max_records=1_000_000)
    archive.s3.delays.update(UploadPart=1.5, CreateMultipartUpload=0.5)
    driver = archive.start("--until-caught-up")
    wait_until(lambda: "UploadPart" in archive.s3.operations, driver, "a part was sent")
    os.killpg(driver.pid, number)
    code, output = ended(driver)

    assert code == 0, output
    committed = archive.committed()
    assert any(offset % 50_000 for offset in committed.values()), f"no partial file: {committed}\n{output}"
    assert sum(committed.values()) < TOTAL
    assert archive.uploads_with_data() == []
    code, output = archive.verify()
    assert code == 0, output

    archive.s3.delays.clear()
    code, output = archive.run("--until-caught-up")
    assert code == 0, output
    assert f"{TOTAL - sum(committed.values()):,} records committed" in output
    assert_complete(archive)


@pytest.mark.nightly
def test_a_standalone_master_runs_a_connector(archive: Site, standalone: Standalone) -> None:
    archive.s3.delays.clear()
    code, output = archive.run("--until-caught-up", master=standalone.url)

    assert code == 0, output
    assert_complete(archive)
