"""``sinksdk delete`` where no driver is alive: what the archiver has on S3 goes, also after kill -9 in the middle."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from connectors.s3_archiver import S3ArchiverConnector
from connectors.s3_archiver.config import S3ArchiverConfig
from connectors.s3_archiver.layout import Layout
from sinksdk import TopicPartition
from sinksdk.connector import ConnectorIdentity
from sinksdk.runtime.herder import Herder
from sinksdk.store import identify, open_store
from tests.integration.archive_site import Site, client, ended, site, wait_until

pytestmark = pytest.mark.slow

KEYS = [Layout().file(TopicPartition("orders", partition), 0) for partition in range(3)]
OTHERS = Layout().file(TopicPartition("others", 0), 0)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    """A connector that was killed: its owner marker, a file and two open uploads; and an upload of somebody else."""
    with site(tmp_path) as made:
        made.topics.mkdir()
        s3 = client(made.endpoint)
        written = json.loads(made.config.read_text())
        config = {**written["config"], "name": "archive", "tasks.max": "1"}
        store = open_store(made.store, create=True)
        record = Herder(store).create("archive", config)
        connector = S3ArchiverConnector()
        connector.identity = ConnectorIdentity(identify(store), "archive", record.incarnation)
        connector.start(S3ArchiverConfig.parse(config))
        store.close()
        s3.put_object(Bucket=made.bucket, Key=KEYS[0], Body=b"archived")
        for key in (*KEYS[1:], OTHERS):
            upload = s3.create_multipart_upload(Bucket=made.bucket, Key=key)["UploadId"]
            s3.upload_part(Bucket=made.bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"half")
        assert Layout().marker("orders") in keys(made)
        yield made


def keys(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket).get("Contents", [])
    return sorted(item["Key"] for item in found)


def open_uploads(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_multipart_uploads(Bucket=archive.bucket).get("Uploads", [])
    return sorted(upload["Key"] for upload in found)


def sinksdk(archive: Site, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "sinksdk.cli", *arguments, "--store", archive.store]
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
    """Uploads and the marker are gone; what is archived is there, and what is somebody else's."""
    assert connectors(archive) == []
    assert open_uploads(archive) == [OTHERS]
    assert keys(archive) == [KEYS[0]]


def test_uploads_and_markers_go_where_no_driver_is_alive(archive: Site) -> None:
    """The command makes the connector, lets it clean up, and removes its records."""
    code, output = ended(sinksdk(archive, "delete", "archive"))

    assert (code, output) == (0, "archive: deleted\n")
    assert_cleaned_up(archive)


def finished_by_the_command(archive: Site) -> None:
    code, output = ended(sinksdk(archive, "delete", "archive"))
    assert (code, output) == (0, "archive: deleted\n")


def finished_by_a_server(archive: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    server = sinksdk(archive, "server", "--port", port, "--source-directory", str(archive.topics))
    try:
        wait_until(lambda: connectors(archive) == [], server, "the deletion was finished")
    finally:
        server.send_signal(signal.SIGTERM)
        code, output = ended(server)
    assert code == 0, output


@pytest.mark.parametrize("finish", [finished_by_the_command, finished_by_a_server])
@pytest.mark.parametrize("operation", ["AbortMultipartUpload", "DeleteObject"])
def test_a_killed_deletion_is_finished_by_the_next_one(
    archive: Site, operation: str, finish: Callable[[Site], None]
) -> None:
    """Kill -9 while an upload is aborted, or the marker removed: the name stays taken until all of it is gone."""
    archive.s3.delays[operation] = 3.0
    killed = sinksdk(archive, "delete", "archive")
    wait_until(lambda: operation in archive.s3.operations, killed, f"{operation} was asked for")
    os.kill(killed.pid, signal.SIGKILL)
    killed.communicate()
    assert connectors(archive) == ["archive"]
    archive.s3.heal()

    finish(archive)
    assert_cleaned_up(archive)
