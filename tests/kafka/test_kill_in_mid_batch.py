"""Processes killed or frozen while a task's reader is in the middle of a batch.

SIGSTOP stops the broker once a part of the first file is on S3: the reader has used up the fetched records and
waits for the rest of its batch. Only then a process is killed.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.archive_site import ended, wait_until
from tests.integration.freezing import executor_of, python_workers_of, stop, wake
from tests.kafka.archive import KafkaSite, kafka_site
from tests.kafka.broker import Broker
from tests.kafka.topics import consume, create_topic, produce, unused_name

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS, SIZE = 2, 5_000, 4_000
TOTAL = PARTITIONS * RECORDS
PART = 5 * 1024 * 1024  # the least that S3 takes: a quarter of a partition
QUIET = 0.5  # seconds without a request to S3: the reader has used up its fetched records
GRACE = 10.0  # seconds that closing may take
SETTINGS = {
    "flush_size": TOTAL,  # one file of each partition, committed with its last record
    "tasks_max": 1,
    "s3_part_size": PART,
    "task_shutdown_graceful_timeout_ms": int(GRACE * 1000),
    "consumer_override_librdkafka_queued_max_messages_kbytes": 1024,
}


@pytest.fixture(scope="module")
def topic(shared_broker: Broker) -> str:
    # 20 MB per partition is more than any client buffers.
    chance = random.Random(0)  # noqa: S311 - no secret
    name = create_topic(shared_broker.bootstrap, unused_name("long"), PARTITIONS)
    for partition in range(PARTITIONS):
        produce(
            shared_broker.bootstrap,
            name,
            (chance.randbytes(SIZE) for _ in range(RECORDS)),
            partition=partition,
        )
    return name


@pytest.fixture
def archive(tmp_path: Path, shared_broker: Broker, topic: str) -> Iterator[KafkaSite]:
    with kafka_site(tmp_path, shared_broker.bootstrap, topic) as made:
        made.configure(**SETTINGS)
        made.s3.delays["UploadPart"] = 0.3  # with longer pauses, a fast reader would be stopped too late
        yield made


@contextmanager
def frozen(broker: Broker) -> Iterator[None]:
    # The frozen broker is like a machine that is cut off: connections stay open.
    pid = broker.pid
    stop(pid)
    try:
        yield
    finally:
        wake([pid])


@contextmanager
def reader_waiting(archive: KafkaSite, broker: Broker, driver: subprocess.Popen[str]) -> Iterator[None]:
    wait_until(lambda: "UploadPart" in archive.s3.operations, driver, "the first part was sent")
    with frozen(broker):
        await_quiet(archive)
        archive.s3.heal()
        parts = archive.s3.operations.count("UploadPart")
        assert 0 < parts * PART < RECORDS * SIZE
        assert not any(archive.committed().values())
        yield


def await_quiet(archive: KafkaSite) -> None:
    seen = -1
    while seen != (seen := len(archive.s3.operations)):
        time.sleep(QUIET)


def kill(pids: Collection[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def assert_complete(archive: KafkaSite) -> None:
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert archive.archived() == consume(archive.bootstrap, archive.topic)
    assert archive.uploads_with_data() == []


def test_worker_killed_during_a_batch_loses_and_repeats_nothing(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        kill(python_workers_of(driver)())

    code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.nightly
def test_executor_killed_during_a_batch_loses_and_repeats_nothing(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    driver = archive.start("--until-caught-up", master="local-cluster[2,1,1024]")
    with reader_waiting(archive, shared_broker, driver):
        (worker,) = python_workers_of(driver)()
        kill([executor_of(driver, worker)()[0]])

    code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.nightly
def test_driver_killed_during_a_batch_loses_and_repeats_nothing(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        driver.kill()
    ended(driver)

    code, output = archive.run("--until-caught-up")

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.nightly
def test_broker_killed_during_a_batch_loses_and_repeats_nothing(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        shared_broker.kill()
        shared_broker.start()

    code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.nightly
def test_broker_frozen_for_a_minute_loses_and_repeats_nothing(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        time.sleep(60)

    code, output = ended(driver)

    assert code == 0, output
    assert_complete(archive)


@pytest.mark.nightly
def test_graceful_close_commits_if_the_broker_responds_in_time(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    # The commit waits for the topic's id.
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        os.killpg(driver.pid, signal.SIGTERM)
        time.sleep(GRACE / 3)
    code, output = ended(driver, 2 * GRACE)

    assert code == 0, output
    begun = archive.committed()
    assert PART // SIZE < sum(begun.values()) < TOTAL
    written = consume(archive.bootstrap, archive.topic)
    assert archive.archived() == [
        record for record in written if record.offset < begun.get(record.partition, 0)
    ]
    assert archive.uploads_with_data() == []

    code, output = archive.run("--until-caught-up")
    assert code == 0, output
    assert f"{TOTAL - sum(begun.values()):,} records committed" in output
    assert_complete(archive)


@pytest.mark.nightly
def test_graceful_close_meets_its_deadline_without_a_broker_response(
    archive: KafkaSite, shared_broker: Broker
) -> None:
    # Without the topic's id nothing is committed.
    driver = archive.start("--until-caught-up")
    with reader_waiting(archive, shared_broker, driver):
        os.killpg(driver.pid, signal.SIGTERM)
        code, output = ended(driver, 3 * GRACE)
        assert not any(archive.committed().values())
        assert archive.archived() == []

    code, output = archive.run("--until-caught-up")

    assert code == 0, output
    assert_complete(archive)
