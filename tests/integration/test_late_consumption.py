from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.memory import peaks
from tests.integration.archive_site import PATIENCE, Site, client, site
from tests.integration.driving import Watcher, driver_of

if TYPE_CHECKING:
    from pyspark import SparkContext

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.produce(1, 170_000, size=20)
        yield made


def files(archive: Site) -> list[str]:
    listed = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket, Prefix="topics/orders/")
    return [item["Key"].rpartition("/")[2] for item in listed.get("Contents", ())]


def run_for_a_while(archive: Site, spark: SparkContext, until: int, more: float) -> Watcher:
    watcher = Watcher()
    driver, _ = driver_of(archive, spark, watcher)
    thread = threading.Thread(target=driver.run)
    thread.start()
    deadline = time.monotonic() + PATIENCE
    while archive.committed().get(0, 0) < until and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(more)
    driver.close()
    thread.join(PATIENCE)
    return watcher


def test_records_without_a_full_file_remain_in_the_source(archive: Site, spark: SparkContext) -> None:
    archive.configure(flush_size=100_000)

    watcher = run_for_a_while(archive, spark, 100_000, more=2.0)

    assert archive.committed() == {0: 100_000}
    assert files(archive) == ["orders+0+0000000000.avro"]
    assert len(watcher.plans) == 1, "nothing was read in vain"
    driver, _ = driver_of(archive, spark)
    driver.run(until_caught_up=True)
    assert archive.committed() == {0: 170_000}
    assert files(archive) == ["orders+0+0000000000.avro", "orders+0+0000100000.avro"]


def test_the_schedule_ends_a_file_without_new_records(archive: Site, spark: SparkContext) -> None:
    archive.configure(flush_size=100_000, rotate_schedule_interval_ms=4_000)

    run_for_a_while(archive, spark, 170_000, more=0.0)

    assert archive.committed() == {0: 170_000}


@pytest.mark.nightly
def test_memory_does_not_grow_with_the_size_of_files() -> None:
    # A file that is 44 MB larger takes no more memory.
    found = peaks((20_000, 200_000), records=400_000, size=200)

    small, large = found.values()
    print(f"\npeak of a task's worker: {found}")
    assert large < small * 1.1
    assert max(found.values()) < 300e6
