"""``sinksdk server``: a day in a connector's life, over REST, with Spark and an S3 server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archive_site import Site, client, site
from tests.integration.served import Server, serving

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 40_000


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=15_000, s3_part_size=5 * 1024 * 1024, restart_backoff_ms=500)
        made.produce(PARTITIONS, RECORDS)
        yield made


@pytest.fixture
def server(archive: Site) -> Iterator[Server]:
    with serving(archive.folder, archive.source, archive.store) as made:
        yield made


def test_a_day_in_the_life_of_a_connector(archive: Site, server: Server) -> None:
    """Created, caught up, paused, resumed, changed, its S3 broken and mended, stopped, deleted; verify is clean."""
    config = json.loads(archive.config.read_text())
    server.ask("POST", "/connectors", 201, json=config)
    server.ask("POST", "/connectors", 409, json=config)
    server.until(lambda: archive.committed() == dict.fromkeys(range(PARTITIONS), 30_000), "whole files")
    assert server.state() == "RUNNING"

    server.ask("PUT", "/connectors/archive/pause", 202)
    server.until(lambda: server.state() == "PAUSED", "it is paused")
    archive.produce(PARTITIONS, RECORDS, first=RECORDS)
    archive.s3.refuses = lambda operation, path: operation == "UploadPart" and "partition=0" in path
    server.ask("PUT", "/connectors/archive/resume", 202)
    server.until(lambda: archive.committed().get(1) == 75_000, "partition 1 goes on alone")
    server.until(lambda: "RESTARTING" in server.task_states(), "its task is RESTARTING")
    archive.s3.heal()
    server.until(lambda: archive.committed() == dict.fromkeys(range(PARTITIONS), 75_000), "both went on")
    assert archive.verify()[0] == 0

    shown = server.ask("GET", "/connectors/archive/config", 200)
    assert shown["aws.secret.access.key"] == "********"
    server.ask("PUT", "/connectors/archive/config", 200, json={**shown, "flush.size": 5_000})
    server.until(
        lambda: archive.committed() == dict.fromkeys(range(PARTITIONS), 80_000), "the tails are files now"
    )
    server.ask("PATCH", "/connectors/archive/offsets", 400, json={"offsets": []})
    server.ask("PUT", "/connectors/archive/stop", 204)
    server.until(lambda: server.state() == "STOPPED", "it is stopped")
    offsets = server.ask("GET", "/connectors/archive/offsets", 200)
    server.ask("PATCH", "/connectors/archive/offsets", 200, json=offsets)
    assert archive.verify()[0] == 0
    committed, files = told(server.ask("GET", "/progress/archive", 200))
    assert committed == PARTITIONS * 80_000
    assert files == len([key for key in keys(archive) if key.endswith(".avro")])

    server.ask("DELETE", "/connectors/archive", 204)
    server.until(lambda: server.ask("GET", "/connectors", 200) == [], "it is deleted")
    server.ask("GET", "/connectors/archive", 404)
    assert archive.uploads() == []
    assert not [key for key in keys(archive) if "_sinksdk" in key]

    assert server.stop() == 0


def keys(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket)
    return [item["Key"] for item in found["Contents"]]


def told(progress: dict[str, Any]) -> tuple[int, int]:
    """Records and files that the history has, in all."""
    buckets = progress["buckets"]
    return sum(bucket["records"] for bucket in buckets), sum(bucket["files"] for bucket in buckets)
