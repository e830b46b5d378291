from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.archive_site import Site, client, ended, site, wait_until
from tests.integration.freezing import cleared_away

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS, RECORDS = 2, 100_000


class Operator:
    def __init__(self, archive: Site) -> None:
        self._archive = archive

    def __call__(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "sinksdk", *command, "--store", self._archive.store],
            cwd=self._archive.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("status", "archive", "--json"))
        return found


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=90_000, s3_part_size=5 * 1024 * 1024, offset_flush_interval_ms=500)
        made.produce(PARTITIONS, RECORDS)
        yield made


def becomes(state: str, operator: Operator) -> Callable[[], bool]:
    return lambda: operator.status()["state"] == state


def test_a_connector_is_paused_changed_and_deleted_while_it_runs(archive: Site) -> None:
    operator = Operator(archive)
    # An operator's command takes a second or two to start.
    archive.s3.delays["UploadPart"] = 4.0
    driver = archive.start()
    with cleared_away([driver]):
        live_through(archive, operator, driver)


def keys(archive: Site) -> set[str]:
    found = client(archive.endpoint).list_objects_v2(Bucket=archive.bucket)
    return {item["Key"] for item in found["Contents"]}


def live_through(archive: Site, operator: Operator, driver: subprocess.Popen[str]) -> None:
    wait_until(lambda: bool(archive.files_in_mid_upload()), driver, "a part was sent")

    operator("pause", "archive")
    wait_until(becomes("PAUSED", operator), driver, "it was paused")
    committed = archive.committed()
    assert any(0 < offset < RECORDS for offset in committed.values()), committed
    assert archive.uploads_with_data() == []
    archive.s3.heal()
    archive.configure(flush_size=30_000, tasks_max=1)
    operator("config", "set", "archive", str(archive.config))
    assert archive.committed() == committed

    operator("resume", "archive")
    operator("flush", "archive")
    wait_until(
        lambda: archive.committed() == dict.fromkeys(range(PARTITIONS), RECORDS), driver, "all was read"
    )
    status = operator.status()
    assert (status["state"], status["lag"], len(status["tasks"])) == ("RUNNING", 0, 1)
    code, output = archive.verify()
    assert code == 0, output

    files = {key for key in keys(archive) if "_sinksdk" not in key}
    operator("delete", "archive")
    code, output = ended(driver)
    assert code == 0, output
    assert json.loads(operator("list", "--json")) == []
    assert archive.uploads() == []
    assert files
    left = {key for key in keys(archive) if "_sinksdk" not in key}
    assert left == files, "only the archive itself is left"
