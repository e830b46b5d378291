from __future__ import annotations

import re
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from benchmarks.null_s3 import NullS3, null_s3


@pytest.fixture(scope="module")
def endpoint() -> Iterator[NullS3]:
    with null_s3(tls=False) as running:
        yield running


def ask(endpoint: NullS3, method: str, target: str, body: bytes = b"", **headers: str) -> bytes:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    request = urllib.request.Request(endpoint.url + target, body or None, names, method=method)  # noqa: S310 - ours
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310 - ours
        found: bytes = answer.read()
    return found


def test_chunk_headers_are_not_part_of_the_object(endpoint: NullS3) -> None:
    framed = b"5;chunk-signature=0\r\nhello\r\n3\r\n...\r\n0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n"
    ask(endpoint, "PUT", "/bucket/framed", framed, x_amz_decoded_content_length="8")
    assert ask(endpoint, "GET", "/bucket/framed") == b"hello..."
    assert endpoint.objects() == {"/bucket/framed": 8}


def test_parts_add_up_to_an_object_when_it_is_completed(endpoint: NullS3) -> None:
    ask(endpoint, "POST", "/bucket/parts?uploads")
    ask(endpoint, "PUT", "/bucket/parts?partNumber=1&uploadId=upload", b"12345")
    ask(endpoint, "PUT", "/bucket/parts?partNumber=2&uploadId=upload", b"678")
    assert endpoint.objects() == {}
    ask(endpoint, "POST", "/bucket/parts?uploadId=upload", b"<xml/>")
    assert endpoint.objects() == {"/bucket/parts": 8}
    assert endpoint.objects() == {}


def test_aborted_upload_leaves_nothing(endpoint: NullS3) -> None:
    ask(endpoint, "PUT", "/bucket/again?partNumber=1&uploadId=upload", b"12345")
    ask(endpoint, "DELETE", "/bucket/again?uploadId=upload")
    ask(endpoint, "PUT", "/bucket/again?partNumber=1&uploadId=upload", b"12")
    ask(endpoint, "POST", "/bucket/again?uploadId=upload", b"<xml/>")
    assert endpoint.objects() == {"/bucket/again": 2}


def test_uploads_have_own_ids_and_list_their_parts(endpoint: NullS3) -> None:
    begun = {ask(endpoint, "POST", "/bucket/listed?uploads") for _ in range(3)}
    assert len(begun) == 3
    ask(endpoint, "PUT", "/bucket/listed?partNumber=1&uploadId=upload", b"12345")
    assert b"<Size>5</Size>" in ask(endpoint, "GET", "/bucket/listed?uploadId=upload")


def test_open_uploads_are_listed(endpoint: NullS3) -> None:
    for key in ("day=1/a%2Bb", "day=1/c", "day=2/a"):
        ask(endpoint, "POST", f"/bucket/{key}?uploads")
    listed = ask(endpoint, "GET", "/bucket?uploads&prefix=day%3D1%2F")
    assert re.findall(b"<Key>(.*?)</Key>", listed) == [b"day=1/a+b", b"day=1/c"]
    first, second = (found.decode() for found in re.findall(b"<UploadId>(.*?)</UploadId>", listed))
    ask(endpoint, "POST", f"/bucket/day=1/a+b?uploadId={first}", b"<xml/>")
    ask(endpoint, "DELETE", f"/bucket/day=1/c?uploadId={second}")
    assert b"<Key>" not in ask(endpoint, "GET", "/bucket?uploads&prefix=day%3D1%2F")


def test_part_of_a_kept_object_can_be_read(endpoint: NullS3) -> None:
    ask(endpoint, "PUT", "/bucket/range", b"0123456789")
    assert ask(endpoint, "GET", "/bucket/range", Range="bytes=2-4") == b"234"
    assert ask(endpoint, "GET", "/bucket/range", Range="bytes=7-") == b"789"


def test_refused_objects_store_no_data_until_the_fault_ends(endpoint: NullS3) -> None:
    endpoint.objects()
    endpoint.refuse("partition=3/")
    for target in ("/bucket/partition=3/a", "/bucket/partition%3D3/a?partNumber=1&uploadId=upload"):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            ask(endpoint, "PUT", target, b"12345")
    ask(endpoint, "PUT", "/bucket/partition=2/a", b"12345")
    endpoint.heal()
    ask(endpoint, "PUT", "/bucket/partition=3/a", b"123")
    assert endpoint.objects() == {"/bucket/partition=2/a": 5, "/bucket/partition=3/a": 3}
