from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, ended, site, wait_until
from tests.integration.freezing import (
    Pids,
    cleared_away,
    everything_of,
    executors_of,
    freeze,
    is_frozen,
    python_workers_of,
    wake,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 60_000
TOTAL = PARTITIONS * RECORDS
FENCED = 3

Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    # Files of 10 MB, of which S3 takes one part; closing has two seconds.
    with site(tmp_path) as made:
        made.configure(flush_size=50_000, tasks_max=2, task_shutdown_graceful_timeout_ms=2_000)
        made.produce(PARTITIONS, RECORDS)
        made.s3.hold_parts(2)
        yield made


@pytest.fixture
def start(archive: Site) -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, **how: str) -> subprocess.Popen[str]:
        started.append(archive.start(*options, **how))
        return started[-1]

    with cleared_away(started):
        yield start


def in_mid_upload(archive: Site, driver: subprocess.Popen[str]) -> None:
    wait_until(lambda: bool(archive.files_in_mid_upload()), driver, "a part was sent")


def assert_fenced(driver: subprocess.Popen[str], message: str = "(took|taken) over") -> str:
    code, output = ended(driver)
    assert code == FENCED, output
    assert output.count("error:") == 1, output
    assert re.search(f"^error: connector archive: .*{message}", output, re.MULTILINE), output
    assert "Traceback" not in output, output
    return output


def records_committed(output: str) -> int:
    found = re.findall(r"^\w[\w ]*: (?:at least )?([\d,]+) records committed", output, re.MULTILINE)
    assert found, output
    return int(found[-1].replace(",", ""))


def assert_complete(archive: Site) -> None:
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    code, output = archive.verify()
    assert code == 0, output
    assert f"{TOTAL:,}" in output
    assert archive.uploads_with_data() == []


def assert_replaced_while_frozen(archive: Site, start: Start, frozen: list[int]) -> None:
    assert archive.files_in_mid_upload(), "no upload was open when they froze"
    archive.s3.heal()

    code, output = ended(start("--until-caught-up"))

    assert code == 0, output
    assert all(map(is_frozen, frozen))
    assert_complete(archive)


@pytest.mark.extended
def test_a_driver_that_resumes_after_its_successor_finished_changes_nothing(
    archive: Site, start: Start
) -> None:
    first = start("--until-caught-up")
    in_mid_upload(archive, first)
    frozen = freeze(archive.store_file, everything_of(first))
    assert_replaced_while_frozen(archive, start, frozen)

    wake(frozen)

    assert_fenced(first)
    assert_complete(archive)


@pytest.mark.nightly
def test_a_driver_that_resumes_during_its_successors_generation_changes_nothing(
    archive: Site, start: Start
) -> None:
    first = start("--until-caught-up")
    in_mid_upload(archive, first)
    frozen = freeze(archive.store_file, everything_of(first))
    before = archive.files_in_mid_upload()
    second = start("--until-caught-up")
    wait_until(
        lambda: bool(archive.files_in_mid_upload() - before), second, "the second one began files of its own"
    )

    wake(frozen)
    archive.s3.heal()

    assert_fenced(first)
    code, output = ended(second)
    assert code == 0, output
    assert_complete(archive)


@pytest.mark.parametrize(
    ("part", "master"),
    [
        (python_workers_of, "local[2]"),
        (executors_of, "local-cluster[2,1,1024]"),
    ],
    ids=["python workers", "executors"],
)
@pytest.mark.nightly
def test_a_driver_with_frozen_tasks_detects_its_replacement(
    archive: Site, start: Start, part: Callable[[subprocess.Popen[str]], Pids], master: str
) -> None:
    first = start("--until-caught-up", master=master)
    in_mid_upload(archive, first)
    frozen = freeze(archive.store_file, part(first))
    assert archive.files_in_mid_upload(), "no upload was open when they froze"
    archive.s3.heal()

    code, output = ended(start("--until-caught-up"))

    assert code == 0, output
    assert_fenced(first)
    wake(frozen)
    assert_complete(archive)


@pytest.mark.nightly
def test_one_of_two_drivers_started_together_archives_all_records(archive: Site, start: Start) -> None:
    archive.s3.heal()
    archive.s3.delays["UploadPart"] = 1.0
    both = [start("--until-caught-up"), start("--until-caught-up")]

    ends = [ended(driver) for driver in both]

    assert sorted(code for code, _ in ends) == [0, FENCED], ends
    assert_complete(archive)


def test_a_rolling_deploy_hands_over_without_stopping_the_old_driver(archive: Site, start: Start) -> None:
    archive.configure(flush_size=50_000, tasks_max=2, task_shutdown_graceful_timeout_ms=30_000)
    archive.s3.heal()
    # An upload of the first driver takes longer than the second driver needs to start.
    archive.s3.delays["UploadPart"] = 4.0
    first = start()
    in_mid_upload(archive, first)

    second = start("--until-caught-up")

    committed = records_committed(assert_fenced(first, "requested a handover and has taken over"))
    archive.s3.heal()
    code, output = ended(second)
    assert code == 0, output
    assert committed > 0
    assert committed + records_committed(output) == TOTAL
    assert_complete(archive)
