from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sinksdk import committed_offsets
from tests.integration.archive_site import Site, client, site
from tests.store import postgres_server

pytestmark = [pytest.mark.extended, pytest.mark.slow, pytest.mark.spark]

# The secret is only in the environment; the store's URL refers to it.
SECRET = "it's a/secret+of&the=tests@home"
RECORDS = 25_000


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setenv("STORE_SECRET", SECRET)
    with site(tmp_path) as made:
        made.produce(2, RECORDS)
        made.configure(flush_size=10_000, closing_poll_ms=200)
        yield made


@pytest.fixture
def on_s3(archive: Site) -> str:
    bucket = f"state-{uuid.uuid4().hex}"
    client(archive.endpoint).create_bucket(Bucket=bucket)
    return (
        f"s3://{bucket}/sinksdk?endpoint={archive.endpoint}&region=us-east-1&access_key_id=key"
        f"&secret_access_key=${{env:STORE_SECRET}}"
    )


@pytest.fixture
def in_postgresql() -> Iterator[str]:
    with postgres_server.serving() as server, server.password_required("archiver", SECRET):
        with server.connect() as connection:
            connection.execute("CREATE SCHEMA archiver AUTHORIZATION archiver")
        yield f"postgresql://archiver:${{env:STORE_SECRET}}@127.0.0.1:{server.port}/postgres"


@pytest.fixture(params=[pytest.param("on_s3", marks=pytest.mark.nightly), "in_postgresql"])
def store(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def verified(archive: Site, store: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "sinksdk.connectors.s3_archiver", "verify", str(archive.config)]
    found = subprocess.run(
        [*command, "--store", store, "--topic-directory", str(archive.topics)],
        cwd=archive.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return found.returncode, found.stdout + found.stderr


def test_two_runs_on_separate_executors_archive_all_records(archive: Site, store: str) -> None:
    output = ""
    for first in (0, RECORDS):
        if first:
            archive.produce(2, RECORDS, first=first)
        code, said = archive.run("--until-caught-up", "--store", store, master="local-cluster[2,1,1024]")
        output += said
        assert code == 0, said
        assert {entry.offset for entry in committed_offsets(store, "archive").values()} == {first + RECORDS}

    code, said = verified(archive, store)

    assert code == 0, said
    assert archive.uploads_with_data() == []
    assert SECRET not in output + said
    assert "***" in output
    assert not (archive.folder / "store.sqlite").exists()
