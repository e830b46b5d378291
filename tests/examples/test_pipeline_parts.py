"""Parts of examples/pipeline; tests/integration/test_pipeline.py runs all of it."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.make_bucket import make_bucket
from examples.pipeline.check import differences, lines_of
from examples.pipeline.readings import Readings
from examples.pipeline.service import Service
from sinksdk.plugins.checks import check_file
from tests.helpers.ports import free_port
from tests.integration.archive_site import client

PIPELINE = Path(__file__).parents[2] / "examples/pipeline"
FILES = {"a": [b"a1", b"a2", b"a3"], "b": [b"b1"]}


@pytest.mark.parametrize("name", ["files.json", "archive.json"])
def test_the_configurations_are_startable(name: str) -> None:
    checked = check_file(PIPELINE / name)
    assert (checked.problems, checked.warnings) == ([], [])


# -- the comparison ------------------------------------------------------------------------------------


def test_an_archive_with_each_line_once_differs_in_nothing() -> None:
    assert differences(FILES | {"c": []}, {b"1": FILES["b"], b"2": FILES["a"]}) == []


@pytest.mark.parametrize(
    ("archived", "difference"),
    [
        ([b"a1", b"a2"], "a, line 3 of 3: b'a3' is b'the end' in the archive"),
        ([b"a1", b"a3"], "a, line 2 of 3: b'a2' is b'a3' in the archive"),
        ([b"a1", b"a1", b"a2", b"a3"], "a, line 2 of 3: b'a2' is b'a1' in the archive"),
        ([b"a1", b"a3", b"a2"], "a, line 2 of 3: b'a2' is b'a3' in the archive"),
        ([b"a1", b"a2", b"a3", b"a3"], "a, line 4 of 3: b'the end' is b'a3' in the archive"),
    ],
    ids=["not archived yet", "lost", "twice", "out of order", "twice at the end"],
)
def test_a_difference_is_reported_with_its_line(archived: list[bytes], difference: str) -> None:
    assert differences(FILES, {b"1": archived, b"2": FILES["b"]}) == [difference]


def test_lines_of_no_file_are_reported() -> None:
    contents = {b"1": FILES["a"], b"2": FILES["b"], b"3": [b"x", b"y"]}
    assert differences(FILES, contents) == ["2 archived lines belong to no file: b'x' …"]


def test_copies_are_not_counted_as_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"1\n2\n3\n4")
    (tmp_path / "a.jsonl.1").write_bytes(b"1\n2\n")
    (tmp_path / "a.jsonl.2.gz").write_bytes(gzip.compress(b"1\n2\n3\n"))
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(b"1\n5\n"))
    assert list(lines_of(tmp_path, "*.jsonl*").values()) == [[b"1", b"2", b"3"], [b"1", b"5"]]


# -- the input -----------------------------------------------------------------------------------------


def test_an_interrupted_input_is_continued(tmp_path: Path) -> None:
    readings = Readings(tmp_path, 10, 1_000)
    readings.run()
    whole = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert sorted(data.count(b"\n") for data in whole.values()) == [3, 3, 4]
    os.truncate(tmp_path / "sensor-0.jsonl", 57)
    (tmp_path / "sensor-1.jsonl").unlink()
    Readings(tmp_path, 10, 1_000).run()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == whole


# -- processes -----------------------------------------------------------------------------------------


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def s3(tmp_path: Path, port: int) -> Iterator[Service]:
    made = Service("s3", ["examples.pipeline.s3", str(port), str(tmp_path / "state")], tmp_path)
    made.ensure()
    yield made
    made.stop()


@pytest.mark.slow
def test_s3_keeps_acknowledged_requests_after_a_kill(s3: Service, port: int) -> None:
    endpoint = f"http://127.0.0.1:{port}"
    make_bucket(endpoint, "archive")
    begun = client(endpoint)
    begun.put_object(Bucket="archive", Key="object", Body=b"body")
    upload = begun.create_multipart_upload(Bucket="archive", Key="large")["UploadId"]
    at = {"Bucket": "archive", "Key": "large", "UploadId": upload}
    tag = begun.upload_part(**at, PartNumber=1, Body=b"part")["ETag"]

    assert s3.process is not None
    os.kill(s3.process.pid, signal.SIGKILL)
    s3.process.wait()
    s3.ensure()

    make_bucket(endpoint, "archive")
    later = client(endpoint)
    later.complete_multipart_upload(**at, MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": tag}]})
    found = [later.get_object(Bucket="archive", Key=key)["Body"].read() for key in ("object", "large")]
    assert found == [b"body", b"part"]


@pytest.mark.slow
def test_a_service_is_started_only_once(s3: Service, tmp_path: Path) -> None:
    assert s3.process is not None
    successor = Service("s3", ["examples.pipeline.s3"], tmp_path)
    successor.ensure()
    assert successor.process is None
    successor.stop()
    assert s3.process.wait() == -signal.SIGTERM
