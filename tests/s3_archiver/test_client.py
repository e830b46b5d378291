from __future__ import annotations

import pickle
import zlib
from typing import Any, cast

import pytest
from botocore import exceptions as boto
from hypothesis import given
from hypothesis import strategies as st

from sinksdk import ConnectException, RetriableException
from sinksdk.connectors.s3_archiver.s3 import boto_client, crc
from sinksdk.connectors.s3_archiver.s3.boto_client import BotoS3, leaves_payload_unsigned
from sinksdk.connectors.s3_archiver.s3.client import Location, Part
from sinksdk.connectors.s3_archiver.s3.errors import (
    Request,
    S3Error,
    S3TransientError,
    error_of,
    is_transient,
)
from sinksdk.connectors.s3_archiver.s3.part import PartBuffer, PartPool
from sinksdk.support.s3 import NO_RESPONSE
from tests.s3_archiver.support import config

WHERE = Location("bucket", "topics/orders/partition=0/orders+0+0000000000.avro")
REQUEST = Request("UploadPart", *WHERE, "https://s3.example")


class StubClient:
    def __init__(self, outcome: Any) -> None:
        self.outcome = outcome
        self.asked: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        def request(**arguments: Any) -> Any:
            self.asked = arguments
            if isinstance(self.outcome, Exception):
                raise self.outcome
            return self.outcome

        return request


def client_error(code: str, status: int, message: str = "") -> boto.ClientError:
    answer = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return boto.ClientError(cast("Any", answer), "UploadPart")


def answering(outcome: Any) -> BotoS3:
    return BotoS3(cast("Any", StubClient(outcome)), "https://s3.example")


def send(outcome: Any) -> Part:
    return answering(outcome).upload_part(WHERE, "id", 1, b"data", crc.encode(zlib.crc32(b"data")))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("SlowDown", 503),
        ("InternalError", 500),
        ("InternalError", 200),
        ("ServiceUnavailable", 503),
        ("RequestTimeout", 400),
        ("ThrottlingException", 400),
        ("ExpiredToken", 400),
        ("BadDigest", 400),
        ("ConditionalRequestConflict", 409),
        ("OperationAborted", 409),
        ("500", 500),
        ("502", 502),
        ("503", 503),
        ("429", 429),
        ("SomethingNew", 500),
    ],
)
def test_transient_codes_are_retriable(code: str, status: int) -> None:
    with pytest.raises(S3TransientError) as caught:
        send(client_error(code, status))

    assert isinstance(caught.value, RetriableException)
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("AccessDenied", 403),
        ("AccessDenied", 500),
        ("NoSuchBucket", 404),
        ("NoSuchUpload", 404),
        ("NoSuchUpload", 500),
        ("PreconditionFailed", 412),
        ("PreconditionFailed", 500),
        ("InvalidPart", 500),
        ("KMS.DisabledException", 400),
        ("KMS.NotFoundException", 500),
        ("InvalidAccessKeyId", 403),
        ("SignatureDoesNotMatch", 403),
        ("NotImplemented", 501),
        ("403", 403),
        ("SomethingNew", 400),
    ],
)
def test_permanent_error_codes_are_not_retriable(code: str, status: int) -> None:
    # S3 sends the refusal in a response with status 200, which boto3 reports as a 500.
    with pytest.raises(S3Error) as caught:
        send(client_error(code, status))

    assert not isinstance(caught.value, RetriableException)
    assert caught.value.code == code


@pytest.mark.parametrize(
    "error",
    [
        boto.EndpointConnectionError(endpoint_url="https://s3.example"),
        boto.ConnectTimeoutError(endpoint_url="https://s3.example"),
        boto.ReadTimeoutError(endpoint_url="https://s3.example"),
        boto.ConnectionClosedError(endpoint_url="https://s3.example"),
        boto.HTTPClientError(error="reset"),
        boto.IncompleteReadError(actual_bytes=1, expected_bytes=2),
        boto.CredentialRetrievalError(provider="web-identity", error_msg="timeout"),
    ],
)
def test_a_missing_response_is_retriable(error: Exception) -> None:
    with pytest.raises(S3TransientError) as caught:
        send(error)

    assert caught.value.code == NO_RESPONSE


def test_missing_credentials_are_not_retriable_and_the_error_names_their_keys() -> None:
    with pytest.raises(S3Error, match=r"aws\.access\.key\.id.*default credential chain"):
        send(boto.NoCredentialsError())


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("NoSuchBucket", "create the bucket"),
        ("AccessDenied", "s3:PutObject"),
        ("KMS.DisabledException", "s3.sse.kms.key.id"),
        ("PermanentRedirect", "s3.region"),
        ("InvalidAccessKeyId", "aws.access.key.id"),
    ],
)
def test_a_permanent_error_names_bucket_key_endpoint_code_and_remedy(code: str, advice: str) -> None:
    message = str(error_of(REQUEST, code, "words of S3.", 403))

    for part in (WHERE.bucket, WHERE.key, "https://s3.example", code, "words of S3", advice):
        assert part in message


def test_errors_survive_pickling() -> None:
    for error in (S3Error("denied", "AccessDenied"), S3TransientError("slow", "SlowDown")):
        copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes

        assert (type(copy), str(copy), copy.code) == (type(error), str(error), error.code)
        assert isinstance(copy, ConnectException)


def test_the_http_status_classifies_an_error_without_code() -> None:
    # A response to HEAD has no body, so botocore uses the status as the code.
    assert is_transient("503")
    assert not is_transient("404")


@pytest.mark.parametrize(
    ("endpoint", "is_unsigned"),
    [
        ("", True),
        ("https://minio.example:9000", True),
        ("http://127.0.0.1:9000", True),
        ("http://localhost:9000", True),
        ("http://minio.example:9000", False),
    ],
)
def test_payload_is_unsigned_only_where_that_is_safe(*, endpoint: str, is_unsigned: bool) -> None:
    # Over http on a network, the signature has to protect the body.
    assert leaves_payload_unsigned(endpoint) is is_unsigned


def test_part_is_sent_with_the_checksum_of_its_buffer() -> None:
    client = StubClient({"ETag": '"e"'})

    part = BotoS3(cast("Any", client), "").upload_part(WHERE, "id", 3, bytearray(b"data"), "AAAAAA==")

    assert part == Part('"e"', "AAAAAA==")
    assert client.asked["ChecksumCRC32"] == "AAAAAA=="
    assert client.asked["PartNumber"] == 3


@pytest.mark.parametrize(
    ("answer", "crc32"),
    [
        ({"ChecksumCRC32": "AAAAAA==", "ChecksumType": "FULL_OBJECT"}, "AAAAAA=="),
        ({"ChecksumCRC32": "AAAAAA=="}, "AAAAAA=="),
        ({"ChecksumCRC32": "AAAAAA==-3", "ChecksumType": "COMPOSITE"}, None),
        ({"ChecksumCRC32": "AAAAAA==", "ChecksumType": "COMPOSITE"}, None),
        ({}, None),
    ],
)
def test_composite_checksums_are_ignored(answer: dict[str, str], crc32: str | None) -> None:
    # A checksum of checksums cannot be compared with the bytes that are read back.
    info = answering({"ContentLength": 4, "Metadata": {}, **answer}).head(WHERE)

    assert info is not None
    assert info.crc32 == crc32


def test_head_of_a_missing_object_returns_none() -> None:
    assert answering(client_error("404", 404)).head(WHERE) is None


def test_a_client_is_created_once_per_process_and_configuration() -> None:
    # Without this, each generation would take half a second to create a client.
    one = config(store_url="http://127.0.0.1:1", aws_access_key_id="a", aws_secret_access_key="b")
    two = config(store_url="http://127.0.0.1:2", aws_access_key_id="a", aws_secret_access_key="b")

    assert boto_client.connect(one)._client is boto_client.connect(one)._client
    assert boto_client.connect(one)._client is not boto_client.connect(two)._client
    assert boto_client.connect(one, "http://127.0.0.1:2")._client is boto_client.connect(two)._client


@given(st.lists(st.binary(max_size=300), max_size=6))
def test_checksums_of_pieces_combine_to_that_of_the_whole(pieces: list[bytes]) -> None:
    combined = 0
    for piece in pieces:
        combined = crc.combine(combined, zlib.crc32(piece), len(piece))

    assert combined == zlib.crc32(b"".join(pieces))


@given(st.lists(st.binary(max_size=300_000 // 64), max_size=8), st.integers(1, 5000))
def test_a_part_buffer_holds_the_filled_bytes(chunks: list[bytes], capacity: int) -> None:
    buffer, taken, whole = PartBuffer(capacity), b"", b"".join(chunks)

    for chunk in chunks:
        rest = buffer.fill(memoryview(chunk))
        taken += chunk[: len(chunk) - len(rest)]

    assert bytes(buffer.body()) == taken
    assert buffer.crc32 == zlib.crc32(taken)
    assert buffer.is_full == (len(taken) == capacity)
    assert len(whole) <= capacity or buffer.is_full


@given(st.lists(st.binary(max_size=5000), min_size=1, max_size=6))
def test_a_part_is_sent_without_a_copy_and_its_buffer_is_reused(parts: list[bytes]) -> None:
    # A copy of the last part would take 22 MB.
    buffer = PartBuffer(5000)
    for part in parts:
        buffer.fill(memoryview(part))
        assert buffer.body() is buffer.body() is buffer._data
        assert (bytes(buffer.body()), buffer.crc32) == (part, zlib.crc32(part))
        buffer.clear()


def test_a_part_buffer_grows_with_its_content_and_keeps_its_memory() -> None:
    # 200 small files must not take the memory of 200 parts.
    buffer = PartBuffer(8 * 1024 * 1024)
    buffer.fill(memoryview(b"x" * 1000))
    assert (buffer.held, buffer.size) == (1000, 0)
    for _ in range(100):
        buffer.fill(memoryview(b"x" * 100_000))
    assert buffer.is_full
    assert buffer.held == 8 * 1024 * 1024
    whole = buffer.body()
    buffer.clear()

    buffer.fill(memoryview(b"y" * 1000))
    assert buffer._data is whole
    assert (len(whole), whole[:1001]) == (8 * 1024 * 1024, b"y" * 1000 + b"x")
    assert buffer.held == 2000


def test_a_pool_reuses_buffers_and_keeps_few() -> None:
    pool = PartPool(100)
    taken = [pool.take() for _ in range(3)]
    for buffer in taken:
        buffer.fill(memoryview(bytes(100)))
        buffer.body()
        pool.give(buffer)

    again = [pool.take() for _ in range(3)]
    assert again[:2] == [taken[1], taken[0]]
    assert again[1].filled == 0
    assert again[2] not in taken


def test_a_pool_does_not_keep_small_buffers() -> None:
    # Without this, the next group would begin with memory that no limit counts.
    pool = PartPool(8 * 1024 * 1024)
    buffer = pool.take()
    buffer.fill(memoryview(bytes(1000)))
    buffer.body()
    pool.give(buffer)

    assert pool.take() is not buffer


@pytest.mark.parametrize(
    ("extension", "content_type"),
    [
        (".avro", "application/avro"),
        (".json", "application/json"),
        (".json.gz", "application/gzip"),
        (".snappy.parquet", "application/vnd.apache.parquet"),
        (".bin", "application/octet-stream"),
    ],
)
def test_an_objects_content_type_matches_its_format(extension: str, content_type: str) -> None:
    stub = StubClient({"UploadId": "id"})
    BotoS3(cast("Any", stub), "").create_upload(Location("bucket", f"a.b/file{extension}"), {})

    assert stub.asked["ContentType"] == content_type
