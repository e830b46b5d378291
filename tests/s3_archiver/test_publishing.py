from __future__ import annotations

import pytest

from sinksdk import Token
from sinksdk.connectors.s3_archiver.s3.client import Location
from sinksdk.connectors.s3_archiver.s3.errors import Request, S3Error, S3TransientError, error_of
from sinksdk.connectors.s3_archiver.s3.publisher import Publisher
from sinksdk.connectors.s3_archiver.s3.requests import one_by_one
from tests.s3_archiver.fake_s3 import FakeS3, Fault, LoggedRequest, no_response
from tests.s3_archiver.support import config


def publisher(s3: FakeS3) -> Publisher:
    return Publisher(config(), lambda _config, _endpoint=None: s3, one_by_one)


def token(s3: FakeS3, upload: str, bucket: str, key: str) -> Token:
    return Token(upload, {"endpoint": s3.endpoint, "bucket": bucket, "key": key})


def test_discard_continues_after_a_refused_abort() -> None:
    # Regression: uploads after one in a deleted bucket were never aborted.
    def gone(request: LoggedRequest) -> Fault | None:
        if request.operation != "AbortMultipartUpload" or request.bucket != "old":
            return None
        request = Request(request.operation, request.bucket, request.key, "x")
        return Fault(error_of(request, "NoSuchBucket", "gone", 404))

    s3 = FakeS3(plan=gone)
    uploads = [s3.create_upload(Location("bucket", f"k{number}"), {}) for number in range(3)]
    tokens = [token(s3, upload, "bucket", f"k{number}") for number, upload in enumerate(uploads)]
    with pytest.raises(S3Error, match="gone"):
        publisher(s3).discard([token(s3, "x", "old", "k"), *tokens])

    assert s3.uploads == {}


def test_discard_stops_at_the_first_transient_error() -> None:
    s3 = FakeS3(
        plan=lambda request: Fault(no_response()) if request.operation == "AbortMultipartUpload" else None
    )
    with pytest.raises(S3TransientError):
        publisher(s3).discard([token(s3, str(number), "bucket", "k") for number in range(10)])

    assert s3.operations().count("AbortMultipartUpload") <= 3
