"""The runbooks of docs/recover.md with the commands as an operator types them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.archive_site import Site, client, site
from tests.integration.test_delete import OTHERS, open_uploads
from tests.integration.test_delete import archive as killed

pytestmark = [pytest.mark.extended, pytest.mark.spark, pytest.mark.slow]

PARTITIONS = 2

__all__ = ["killed"]  # a fixture


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Site]:
    with site(tmp_path) as made:
        made.configure(flush_size=300)
        made.produce(PARTITIONS, 1_000)
        assert run(made)[0] == 0
        yield made


def run(archive: Site) -> tuple[int, str]:
    return archive.run("--until-caught-up")


def operator(archive: Site, *command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "sinksdk", *command, "--store", archive.store],
        cwd=archive.folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    return done.returncode, done.stdout + done.stderr


def offsets(archive: Site) -> dict[int, list[int]]:
    return {
        partition: [record["offset"] for record in found] for partition, found in archive.archived().items()
    }


def everything(count: int) -> dict[int, list[int]]:
    return {partition: list(range(count)) for partition in range(PARTITIONS)}


def expect_recovered(archive: Site, count: int) -> None:
    code, said = run(archive)
    assert code == 0, said
    assert {p: sorted(found) for p, found in offsets(archive).items()} == everything(count)
    code, said = archive.verify()
    assert code == 0, said


def test_a_store_restored_from_an_older_copy_is_recovered(archive: Site) -> None:
    shutil.copy(archive.store_file, archive.folder / "backup.sqlite")
    archive.produce(PARTITIONS, 777, first=1_000)
    assert run(archive)[0] == 0
    archive.produce(PARTITIONS, 500, first=1_777)
    shutil.copy(archive.folder / "backup.sqlite", archive.store_file)
    before = offsets(archive)

    code, said = run(archive)
    assert code == 2, said
    assert "offset 1000 is committed" in said
    assert "sinksdk offsets recover" in said
    assert offsets(archive) == before

    code, said = operator(archive, "offsets", "recover", str(archive.config))
    assert code == 0, said
    expect_recovered(archive, 2_277)


def test_a_lost_store_is_recovered(archive: Site) -> None:
    archive.store_file.unlink()
    archive.produce(PARTITIONS, 500, first=1_000)

    code, said = run(archive)
    assert code == 2, said
    assert "whose commits are in another store" in said
    assert "sinksdk offsets recover" in said

    code, said = operator(archive, "offsets", "recover", str(archive.config))
    assert code == 0, said
    assert archive.committed() == dict.fromkeys(range(PARTITIONS), 1_000)
    expect_recovered(archive, 1_500)


def test_files_lost_in_the_bucket_are_archived_again(archive: Site) -> None:
    s3, folder = client(archive.endpoint), f"topics/{archive.topic}/partition=0/"
    s3.delete_object(Bucket=archive.bucket, Key=f"{folder}{archive.topic}+0+0000000300.avro")
    code, said = archive.verify()
    assert code == 1, said
    assert "missing" in said

    code, said = operator(archive, "stop", "archive")
    assert code == 0, said
    code, said = operator(archive, "offsets", "alter", "archive", f"{archive.topic}-0=300")
    assert code != 0, "the files that follow would be archived twice"
    assert "would be archived twice" in said
    for start in (600, 900):
        key = f"{folder}{archive.topic}+0+{start:010d}.avro"
        s3.copy_object(
            Bucket=archive.bucket, Key=f"moved/{key}", CopySource={"Bucket": archive.bucket, "Key": key}
        )
        s3.delete_object(Bucket=archive.bucket, Key=key)
    code, said = operator(archive, "offsets", "recover", str(archive.config))
    assert code == 0, said
    assert archive.committed() == {0: 300, 1: 1_000}
    for found in s3.list_objects_v2(Bucket=archive.bucket, Prefix="moved/")["Contents"]:
        s3.delete_object(Bucket=archive.bucket, Key=found["Key"])

    expect_recovered(archive, 1_000)


def test_committed_files_are_published_before_offsets_are_recovered(killed: Site) -> None:
    # Without this step a restored store could not be used: its start is refused, and offsets of unpublished
    # commits cannot be altered.
    code, said = operator(killed, "offsets", "recover", str(killed.config))

    assert code == 0, said
    assert killed.committed() == {0: 10, 1: 10}
    assert offsets(killed) == {0: list(range(10)), 1: list(range(10))}
    assert open_uploads(killed) == [OTHERS]
    code, said = operator(killed, "offsets", "show", "archive")
    assert code == 0, said
