from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archive_site import Site, client, site
from tests.integration.served import Server, serving

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 40_000


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(
            flush_size=15_000, s3_part_size=5 * 1024 * 1024, restart_backoff_ms=500, restart_max_attempts=100
        )
        made.produce(PARTITIONS, RECORDS)
        yield made


@pytest.fixture
def server(archive: Site) -> Iterator[Server]:
    with serving(archive.folder, archive.source, archive.store) as made:
        yield made


def test_a_connector_is_created_paused_altered_and_deleted_over_rest(archive: Site, server: Server) -> None:
    it_is_created_and_catches_up(archive, server)
    it_is_paused_and_resumed_with_a_broken_s3(archive, server)
    a_task_is_poisoned(archive, server)
    its_offsets_are_altered(archive, server)
    it_is_deleted(archive, server)
    assert server.stop() == 0


def it_is_created_and_catches_up(archive: Site, server: Server) -> None:
    config = json.loads(archive.config.read_text())
    server.ask("POST", "/connectors", 201, json=config)
    server.ask("POST", "/connectors", 409, json=config)
    server.until(lambda: lag(server) == PARTITIONS * RECORDS, "the lag is known")
    lags = [lag(server)]
    server.until(lambda: lags.append(lag(server)) or lags[-1] == PARTITIONS * 10_000, "the lag falls")  # type: ignore[func-returns-value]  # None, so the rest decides
    assert lags == sorted(lags, reverse=True)
    assert archive.committed() == both(30_000)  # whole files
    assert server.state() == "RUNNING"
    assert archive.verify()[0] == 0


def it_is_paused_and_resumed_with_a_broken_s3(archive: Site, server: Server) -> None:
    # The connector is resumed with more tasks. One of them is RESTARTING until S3 responds again.
    server.ask("PUT", "/connectors/archive/pause", 202)
    server.until(lambda: server.state() == "PAUSED", "it is paused")
    archive.produce(PARTITIONS, RECORDS, first=RECORDS)
    time.sleep(1.5)
    assert archive.committed() == both(30_000)
    refuse(archive, partition=0)
    server.ask("PATCH", "/connectors/archive/config", 200, json={"tasks.max": 2})
    server.ask("PUT", "/connectors/archive/resume", 202)
    server.until(lambda: archive.committed().get(1) == 75_000, "partition 1 goes on alone")
    server.until(lambda: "RESTARTING" in server.task_states(), "its task is RESTARTING")
    assert len(server.ask("GET", "/connectors/archive/tasks", 200)) == 2
    archive.s3.heal()
    server.until(lambda: archive.committed() == both(75_000), "both went on")
    server.until(lambda: server.task_states() == {"RUNNING"}, "its task is RUNNING again, by itself")
    assert archive.verify()[0] == 0


def a_task_is_poisoned(archive: Site, server: Server) -> None:
    # The backoff is long enough for the other partition to write its file before the last attempt.
    change = {"restart.max.attempts": 1, "restart.backoff.ms": 5_000, "flush.size": 5_000}
    server.ask("PATCH", "/connectors/archive/config", 200, json=change)
    server.until(lambda: archive.committed() == both(80_000), "smaller files are written")
    refuse(archive, partition=1)
    archive.produce(PARTITIONS, 5_000, first=80_000)
    server.until(lambda: server.state() == "FAILED", "it has FAILED")
    assert archive.committed() == {0: 85_000, 1: 80_000}
    failed = server.status()
    assert "AccessDenied" in failed["connector"]["trace"]
    states = {task["id"]: task["state"] for task in failed["tasks"]}
    traces = {task["id"]: task.get("trace", "") for task in failed["tasks"]}
    (culprit,) = [task for task, state in states.items() if state == "FAILED"]
    assert "AccessDenied" in traces[culprit]
    assert archive.verify()[0] == 0
    archive.s3.heal()
    server.ask("POST", "/connectors/archive/restart?includeTasks=true&onlyFailed=true", 202)
    server.until(lambda: archive.committed() == both(85_000), "it goes on")
    server.until(lambda: server.state() == "RUNNING", "it is RUNNING")
    assert archive.verify()[0] == 0


def its_offsets_are_altered(archive: Site, server: Server) -> None:
    server.ask("PATCH", "/connectors/archive/offsets", 400, json={"offsets": []})
    server.ask("PUT", "/connectors/archive/stop", 204)
    server.until(lambda: server.state() == "STOPPED", "it is stopped")
    archive.produce(PARTITIONS + 1, 10_000, first=85_000)
    skip = {
        "partition": {"kafka_topic": archive.topic, "kafka_partition": 2},
        "offset": {"kafka_offset": 90_000},
    }
    server.ask("PATCH", "/connectors/archive/offsets", 200, json={"offsets": [skip]})
    assert archive.committed() == {**both(85_000), 2: 90_000}
    server.ask("PUT", "/connectors/archive/resume", 202)
    server.until(lambda: archive.committed() == {**both(95_000), 2: 95_000}, "it goes on from there")
    code, said = archive.verify()
    assert code == 0, said
    server.until(lambda: lag(server) == 0, "the lag is none")
    committed, files = told(server.ask("GET", "/progress/archive", 200))
    assert committed == PARTITIONS * 95_000 + 5_000
    assert files == len([key for key in keys(archive) if key.endswith(".avro")])


def it_is_deleted(archive: Site, server: Server) -> None:
    server.ask("DELETE", "/connectors/archive", 204)
    server.until(lambda: server.ask("GET", "/connectors", 200) == [], "it is deleted")
    server.ask("GET", "/connectors/archive", 404)
    assert archive.uploads() == []
    released = [key for key in keys(archive) if "_sinksdk/deleted/" in key]
    assert len(released) == 1


def both(offset: int) -> dict[int, int]:
    return dict.fromkeys(range(PARTITIONS), offset)


def lag(server: Server) -> int:
    found = server.ask("GET", "/progress/archive", 200)
    known: int = found["lag"]
    return known if found["partitions"] else -1


def refuse(archive: Site, partition: int) -> None:
    path = f"partition={partition}/"
    archive.s3.refuses = lambda operation, where: operation in ("UploadPart", "PutObject") and path in where


def keys(archive: Site) -> list[str]:
    found = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket)
    return [item["Key"] for item in found["Contents"]]


def told(progress: dict[str, Any]) -> tuple[int, int]:
    buckets = progress["buckets"]
    return sum(bucket["records"] for bucket in buckets), sum(bucket["files"] for bucket in buckets)
