"""``sinksdk server``: a day in a connector's life, over REST, with Spark and an S3 server."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.archive_site import Site, client, ended, site

pytestmark = [pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 40_000
PATIENCE = 60.0  # seconds


class Server:
    """A server in a process of its own, and a client of it."""

    def __init__(self, archive: Site) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [sys.executable, "-m", "sinksdk.cli", "server", *archive.source, "--store", archive.store]
        self.process = subprocess.Popen(
            [*command, "--master", "local[2]", "--port", str(self.port)],
            cwd=archive.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", timeout=20)
        self.until(self.is_up, "it answers")

    def is_up(self) -> bool:
        try:
            return self._client.get("/health").status_code == 200
        except httpx.TransportError:
            return False

    def until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
            time.sleep(0.1)

    def ask(self, method: str, path: str, code: int, **body: Any) -> Any:
        answer = self._client.request(method, path, **body)
        assert answer.status_code == code, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def state(self) -> str:
        state: str = self.ask("GET", "/connectors/archive/status", 200)["connector"]["state"]
        return state


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=15_000, s3_part_size=5 * 1024 * 1024, restart_backoff_ms=500)
        made.produce(PARTITIONS, RECORDS)
        yield made


@pytest.fixture
def server(archive: Site) -> Iterator[Server]:
    made = Server(archive)
    yield made
    if made.process.poll() is None:
        made.process.kill()
        made.process.communicate()


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
    server.until(
        lambda: (
            "RESTARTING"
            in {task["state"] for task in server.ask("GET", "/connectors/archive/status", 200)["tasks"]}
        ),
        "its task is RESTARTING",
    )
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

    server.ask("DELETE", "/connectors/archive", 204)
    server.until(lambda: server.ask("GET", "/connectors", 200) == [], "it is deleted")
    server.ask("GET", "/connectors/archive", 404)
    assert archive.uploads() == []
    keys = [
        item["Key"] for item in client(archive.endpoint).list_objects_v2(Bucket=archive.bucket)["Contents"]
    ]
    assert not [key for key in keys if "_sinksdk" in key]

    server.process.send_signal(signal.SIGTERM)
    code, output = ended(server.process)
    assert code == 0, output
