from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from property_tests.soak_server.gate import Gate
from tests.integration.archive_site import Site, ended, site

pytestmark = pytest.mark.slow


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.produce(1, 10)
        yield made


def assert_refused(archive: Site, *words: str) -> None:
    code, output = archive.run("--until-caught-up")

    assert code == 2, output
    assert "Traceback" not in output
    assert output.count("error:") == 1, output
    text = " ".join(output.split())
    assert all(word in text for word in words), text
    assert archive.committed() == {}
    assert "waits for" not in text, text


@pytest.mark.extended
def test_a_missing_bucket_fails_the_start(archive: Site) -> None:
    archive.configure(s3_bucket_name="no-such-bucket")

    assert_refused(archive, "no-such-bucket", archive.endpoint, "s3.bucket.name")


@pytest.mark.extended
def test_denied_access_at_the_start_names_the_permissions(archive: Site) -> None:
    archive.s3.refuses = lambda operation, path: True

    assert_refused(archive, archive.bucket, "grant")


@pytest.mark.extended
def test_an_unreachable_endpoint_at_the_start_is_retried(archive: Site) -> None:
    gate = Gate(int(archive.endpoint.rpartition(":")[2]))
    archive.configure(store_url=f"http://127.0.0.1:{gate.port}")
    process = archive.start("--until-caught-up")
    assert process.stdout is not None

    lines = []
    for line in process.stdout:
        lines.append(line)
        if f"http://127.0.0.1:{gate.port}" in " ".join(lines[-4:]) and "waits" in " ".join(lines[-4:]):
            break
    assert process.poll() is None, "".join(lines)
    with gate:
        code, output = ended(process)

    assert code == 0, "".join(lines) + output
    assert "Traceback" not in "".join(lines) + output
    assert sum(archive.committed().values()) == 10


@pytest.mark.extended
def test_a_prefix_of_another_connector_is_refused(archive: Site) -> None:
    code, output = archive.run("--until-caught-up")
    assert code == 0, output
    written = json.loads(archive.config.read_text())
    archive.config.write_text(json.dumps({**written, "name": "another"}))
    before = archive.committed()

    code, output = archive.run("--until-caught-up")

    assert code == 2, output
    assert "Traceback" not in output
    text = " ".join(output.split())
    assert "archive" in text
    assert "topics.dir" in text
    assert archive.committed() == before
