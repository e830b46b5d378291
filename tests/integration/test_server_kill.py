from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, site
from tests.integration.served import Server, serving

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 40_000


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=10_000, s3_part_size=5 * 1024 * 1024, restart_backoff_ms=500)
        made.produce(PARTITIONS, RECORDS)
        yield made


def begin(archive: Site, server: Server) -> None:
    # The connector is in the middle of a file of each partition.
    archive.s3.delays["UploadPart"] = 1.0
    server.ask("POST", "/connectors", 201, json=json.loads(archive.config.read_text()))
    server.until(lambda: archive.s3.operations.count("UploadPart") >= 2, "parts are being uploaded")


def jvm_of(server: Server) -> int:
    children = subprocess.run(
        ["ps", "--ppid", str(server.process.pid), "-o", "pid,comm", "--no-headers"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (found,) = [line.split()[0] for line in children.splitlines() if line.endswith("java")]
    return int(found)


def caught_up(archive: Site) -> bool:
    return archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS)


@pytest.mark.extended
def test_a_killed_spark_is_replaced(archive: Site) -> None:
    with serving(archive.folder, archive.source, archive.store) as server:
        begin(archive, server)
        os.kill(jvm_of(server), signal.SIGKILL)
        archive.s3.heal()
        server.until(lambda: caught_up(archive), "all is archived", 120)
        assert any("has died" in line["message"] for line in server.lines())
        assert archive.verify()[0] == 0
        server.until(lambda: server.task_states() == {"RUNNING"}, "the task does well again")
        assert server.stop() == 0


def test_a_killed_server_continues_after_its_restart(archive: Site) -> None:
    with serving(archive.folder, archive.source, archive.store) as first:
        begin(archive, first)
        os.killpg(first.process.pid, signal.SIGKILL)
        first.process.wait()
    archive.s3.heal()
    with serving(archive.folder, archive.source, archive.store) as server:
        server.until(lambda: caught_up(archive), "all is archived", 120)
        assert archive.verify()[0] == 0
        assert server.stop() == 0
    assert archive.uploads_with_data() == []


@pytest.mark.nightly
def test_a_second_server_on_the_store_takes_over_when_the_first_stops(archive: Site) -> None:
    with serving(archive.folder, archive.source, archive.store) as first:
        begin(archive, first)
        driver = first.status()["connector"]["worker_id"]
        with serving(archive.folder, archive.source, archive.store) as second:
            archive.s3.heal()
            first.until(lambda: caught_up(archive), "the first goes on")
            assert second.status()["connector"]["worker_id"].split("#")[0] == driver.split("#")[0]
            assert first.stop() == 0
            archive.produce(PARTITIONS, 10_000, first=RECORDS)
            second.until(
                lambda: archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS + 10_000),
                "the second goes on",
            )
            assert archive.verify()[0] == 0
            assert second.stop() == 0
