from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sinksdk import SinkRecord, SinkRecords, TopicPartition
from sinksdk.connector import ConnectorIdentity
from sinksdk.connectors.s3_archiver import S3ArchiverConnector
from sinksdk.connectors.s3_archiver.archive.layout import FileName, Layout
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.task import S3ArchiverTask
from sinksdk.control.herder import Herder
from sinksdk.engine import EngineOptions, SystemClock, TaskName, WorkerSinkTask
from sinksdk.engine.retry import RetryPolicy
from sinksdk.model.plan import RangePlan
from sinksdk.store import Store, identify, open_store, take_over
from sinksdk.store.generations import Generations
from sinksdk.store.records import ConnectorRecord, TaskPlan
from tests.helpers.ports import free_port
from tests.integration.archive_site import Site, client, ended, site, wait_until

pytestmark = pytest.mark.slow

KEYS = [
    Layout().file(FileName(TopicPartition("orders", partition), 0, f"partition={partition}"))
    for partition in range(3)
]
OTHERS = Layout().file(FileName(TopicPartition("others", 0), 0, "partition=0"))


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    # At the kill, one committed file is not published and another only begun; there are also a published
    # file, the owner marker, and an upload of another connector.
    with site(tmp_path) as made:
        made.topics.mkdir()
        s3 = client(made.endpoint)
        written = json.loads(made.config.read_text())
        config = {**written["config"], "name": "archive", "tasks.max": "1", "flush.size": "10"}
        store = open_store(made.store, create=True)
        record = Herder(store).create("archive", config)
        connector = S3ArchiverConnector()
        connector.identity = ConnectorIdentity(identify(store), "archive", record.incarnation)
        connector.start(S3ArchiverConfig.parse(config))
        archive_until_killed(store, record, made)
        store.close()
        upload = s3.create_multipart_upload(Bucket=made.bucket, Key=OTHERS)["UploadId"]
        s3.upload_part(Bucket=made.bucket, Key=OTHERS, UploadId=upload, PartNumber=1, Body=b"half")
        assert (keys(made), open_uploads(made)) == ([Layout().marker("orders"), KEYS[0]], [*KEYS[1:], OTHERS])
        yield made


def archive_until_killed(store: Store, record: ConnectorRecord, site: Site) -> None:
    partitions = [TopicPartition("orders", number) for number in range(3)]
    generations = Generations(store, "archive")
    ranges = tuple(RangePlan.of(p, 0, end=20) for p in partitions)
    plan = generations.plan(generations.claim(), (TaskPlan(ranges=ranges),), record.version, record.config)
    taken = take_over(store, "archive", plan.generation, 0)
    assert taken is not None
    worker = WorkerSinkTask(
        S3ArchiverTask(),
        TaskName("archive", 0),
        S3ArchiverConfig.parse(record.config),
        commits=taken.ledger,
        clock=SystemClock(),
        generation=plan.generation,
        options=EngineOptions(retry=RetryPolicy(0.0)),
    )
    worker.start()
    worker.open([RangePlan.of(p, 0, 20) for p in partitions])
    refused = {("CompleteMultipartUpload", 1), ("UploadPart", 2), ("AbortMultipartUpload", 2)}
    site.s3.refuses = lambda operation, path: any(
        operation == what and f"partition={number}/" in path for what, number in refused
    )
    for partition in partitions:
        rows = [SinkRecord(*partition, offset=offset, value=b"record") for offset in range(10)]
        worker.deliver(SinkRecords.of(partition, rows))
    worker.commit()
    site.s3.heal()
    site.s3.operations.clear()


def keys(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket).get("Contents", [])
    return sorted(item["Key"] for item in found)


def open_uploads(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_multipart_uploads(Bucket=archive.bucket).get("Uploads", [])
    return sorted(upload["Key"] for upload in found)


def sinksdk(archive: Site, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sinksdk", *arguments, "--store", archive.store]
    return subprocess.Popen(
        command, cwd=archive.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )  # fmt: skip


def connectors(archive: Site) -> list[str]:
    store = open_store(archive.store)
    try:
        return Herder(store).connectors()
    finally:
        store.close()


def assert_cleaned_up(archive: Site) -> None:
    assert connectors(archive) == []
    assert open_uploads(archive) == [OTHERS]
    assert [key for key in keys(archive) if "/_sinksdk/" not in key] == KEYS[:2]
    config = json.loads(archive.config.read_text())["config"]
    connector = S3ArchiverConnector()
    connector.identity = ConnectorIdentity("another", "another", "another")
    connector.start(S3ArchiverConfig.parse({**config, "name": "another"}))


def test_deletion_without_a_driver_aborts_uploads_and_releases_markers(archive: Site) -> None:
    code, output = ended(sinksdk(archive, "delete", "archive"))

    assert code == 0, output
    assert output.endswith("archive: deleted\n"), output
    assert_cleaned_up(archive)


def finished_by_the_command(archive: Site) -> None:
    code, output = ended(sinksdk(archive, "delete", "archive"))
    assert code == 0, output
    assert output.endswith("archive: deleted\n"), output


def finished_by_a_server(archive: Site) -> None:
    port = str(free_port())
    server = sinksdk(archive, "server", "--port", port, "--topic-directory", str(archive.topics))
    try:
        wait_until(lambda: connectors(archive) == [], server, "the deletion was finished")
    finally:
        server.send_signal(signal.SIGTERM)
        code, output = ended(server)
    assert code == 0, output


@pytest.mark.extended
@pytest.mark.parametrize(
    ("operation", "finish"),
    [
        ("CompleteMultipartUpload", finished_by_a_server),
        ("PutObject", finished_by_the_command),
        pytest.param("AbortMultipartUpload", finished_by_the_command, marks=pytest.mark.nightly),
        pytest.param("PutObject", finished_by_a_server, marks=pytest.mark.nightly),
    ],
)
def test_a_killed_deletion_is_completed_by_the_next_one(
    archive: Site, operation: str, finish: Callable[[Site], None]
) -> None:
    archive.s3.delays[operation] = 3.0
    killed = sinksdk(archive, "delete", "archive")
    wait_until(lambda: operation in archive.s3.operations, killed, f"{operation} was asked for")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert connectors(archive) == ["archive"]
    archive.s3.heal()

    finish(archive)
    assert_cleaned_up(archive)
