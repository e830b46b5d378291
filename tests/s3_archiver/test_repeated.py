"""Requests that are made by boto3's example, against boto3's own; a handler in boto3 answers instead of a store."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, cast
from unittest import mock

import pytest
from botocore import exceptions as boto
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest, AWSResponse
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import given
from hypothesis import strategies as st

from sinksdk.connectors.s3_archiver import boto_client
from sinksdk.connectors.s3_archiver.boto_client import BotoS3
from sinksdk.connectors.s3_archiver.client import Location, Part
from sinksdk.connectors.s3_archiver.errors import NO_ANSWER, S3Error, S3Trouble
from sinksdk.connectors.s3_archiver.repeated import REST, Own, Pattern, RepeatedRequests, signed
from tests.s3_archiver.support import config

WHERE = Location("bucket", "topics/orders/place=a b+ü~/orders+0+0000000000.avro")
PARTS = [Part('"one"', "AAAAAA=="), Part('"two"', "AAAAAQ==")]
ANSWERS: Mapping[str, bytes] = {
    "CreateMultipartUpload": b"<InitiateMultipartUploadResult><UploadId>a&amp;b</UploadId></InitiateMultipartUploadResult>",
    "UploadPart": b"",
    "CompleteMultipartUpload": b"<CompleteMultipartUploadResult><ETag>e</ETag></CompleteMultipartUploadResult>",
    "ListParts": b"<ListPartsResult><Part><Size>3</Size></Part><Part><Size>4</Size></Part></ListPartsResult>",
}
ASK: Mapping[str, Callable[[BotoS3], object]] = {
    "CreateMultipartUpload": lambda s3: s3.create_upload(WHERE, {"sinksdk-nonce": "n  1", "start": "7"}),
    "UploadPart": lambda s3: s3.upload_part(WHERE, "a&b", 3, bytearray(b"data"), "rfPzYw=="),
    "CompleteMultipartUpload": lambda s3: s3.complete_upload(WHERE, "a&b", PARTS, size=9, crc32="AAAAAg=="),
    "ListParts": lambda s3: s3.uploaded_bytes(WHERE, "a&b"),
}
OPERATIONS = tuple(ASK)
NOT_COMPARED = {
    "authorization",
    "x-amz-date",
    "amz-sdk-invocation-id",
    "amz-sdk-request",
    "expect",
    "host",
    "user-agent",
}


class Store:
    """Answers what boto3 is about to send, and keeps it."""

    def __init__(self) -> None:
        self.seen: list[AWSPreparedRequest] = []
        self.spoiled: list[tuple[int, bytes] | Exception] = []

    def answer(self, request: AWSPreparedRequest, event_name: str, **_: object) -> AWSResponse:
        """As a ``before-send`` handler."""
        self.seen.append(request)
        status, content = 200, ANSWERS[event_name.rpartition(".")[2]]
        if self.spoiled:
            spoiled = self.spoiled.pop(0)
            if isinstance(spoiled, Exception):
                raise spoiled
            status, content = spoiled
        body = mock.Mock(stream=lambda *_, **__: iter([content]))
        return AWSResponse(str(request.url), status, cast("Any", {"ETag": '"etag"'}), body)

    @property
    def by(self) -> list[str]:
        """Who made the requests."""
        return ["boto3" if "amz-sdk-request" in request.headers else "us" for request in self.seen]


class HandClock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


_stores: list[Store] = []


def _answer(**arguments: Any) -> AWSResponse:
    return _stores[-1].answer(**arguments)


@pytest.fixture
def store() -> Store:
    _stores[:] = [Store()]
    return _stores[0]


@pytest.fixture
def made(store: Store, clock: HandClock) -> Callable[..., BotoS3]:
    """Makes clients of the store; boto3 makes no second attempts."""

    def make(keys: Mapping[str, str] | None = None, *, is_quick: bool = True) -> BotoS3:
        settings = config(
            {
                "aws.access.key.id": "key",
                "aws.secret.access.key": "secret",
                "s3.part.retries": "0",
                "store.url": "https://s3.example:9000",
                **(keys or {}),
            }
        )
        s3 = boto_client.connect(settings)
        s3._client.meta.events.register("before-send.s3", _answer, unique_id="store")
        assert s3._repeated is not None
        s3._repeated._clock, s3._repeated._rests_until = clock, 0.0
        return s3 if is_quick else BotoS3(s3._client, s3.endpoint, s3._options)

    return make


def compared(request: AWSPreparedRequest) -> tuple[Any, ...]:
    """What must be the same, whoever makes it."""
    url, _, query = str(request.url).partition("?")
    headers = {
        name.lower(): value.decode() if isinstance(value, bytes) else value
        for name, value in request.headers.items()
    }
    body: Any = request.body
    if isinstance(body, io.BytesIO):
        body = body.getvalue()
    if body and body.startswith(b"<"):
        body = sorted(re.findall(rb"<(\w+)[^>]*>([^<]+)</\1>", body.replace(b"&quot;", b'"')))
        del headers["content-length"], headers["x-amz-content-sha256"]  # of its text
    if not body:
        body = b""
    own = {name: " ".join(value.split()) for name, value in headers.items() if name not in NOT_COMPARED}
    return (
        request.method,
        url,
        sorted(query.removesuffix("=").split("&")),
        own,
        bytes(body) if isinstance(body, bytearray) else body,
    )


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"store.url": "http://192.0.2.1:80"},  # the signature covers the body
        {"store.url": "", "s3.region": "eu-north-1", "s3.path.style.access.enabled": "false"},
        {"store.url": "", "s3.wan.mode": "true", "s3.path.style.access.enabled": "false"},
        {
            "s3.ssea.name": "aws:kms",
            "s3.sse.kms.key.id": "a-key",
            "s3.acl.canned": "bucket-owner-full-control",
        },
    ],
)
def test_a_request_is_the_one_that_boto3_makes(
    store: Store, made: Callable[..., BotoS3], operation: str, keys: Mapping[str, str]
) -> None:
    """Address, query, headers with encryption and ACL, body: all but who says it made it, and the moment."""
    expected = ASK[operation](made(keys, is_quick=False))
    assert ASK[operation](made(keys)) == expected

    assert store.by == ["boto3", "us"]
    theirs, ours = map(compared, store.seen)
    assert ours == theirs


def test_an_example_is_not_sent(store: Store, made: Callable[..., BotoS3]) -> None:
    """What boto3 is asked for once per operation and bucket reaches no store; later keys need no more."""
    s3 = made()
    for key in ("a", "b", "c"):
        s3.uploaded_bytes(Location("bucket", key), "id")

    assert [str(request.url).partition("?")[0][-9:] for request in store.seen] == [
        "/bucket/a",
        "/bucket/b",
        "/bucket/c",
    ]
    assert store.by == ["us"] * 3


FAILURES: Mapping[str, tuple[int, bytes] | Exception] = {
    "throttled": (503, b"<Error><Code>SlowDown</Code></Error>"),
    "too many": (429, b""),
    "broken": (500, b"<Error><Code>InternalError</Code></Error>"),
    "refused": (403, b"<Error><Code>AccessDenied</Code></Error>"),
    "signed wrongly": (403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"),
    "expired": (400, b"<Error><Code>ExpiredToken</Code></Error>"),
    "gone": (404, b"<Error><Code>NoSuchUpload</Code></Error>"),
    "no answer": boto.ReadTimeoutError(endpoint_url="https://s3.example"),
    "cut off": boto.ConnectionClosedError(endpoint_url="https://s3.example"),
    "of a proxy": (200, b"<Error><Code>InternalError</Code></Error>"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("failure", FAILURES)
def test_after_a_failure_boto3_makes_the_request(
    store: Store, made: Callable[..., BotoS3], operation: str, failure: str
) -> None:
    """Whatever went wrong: if it does not go wrong again, nobody notices."""
    store.spoiled = [FAILURES[failure]]
    s3 = made()
    answer = ASK[operation](s3)

    assert store.by == ["us", "boto3"]
    assert answer == ASK[operation](made(is_quick=False))


@pytest.mark.parametrize("failure", [name for name in FAILURES if name not in ("of a proxy", "gone")])
def test_a_failure_that_stays_is_said_as_boto3_says_it(
    store: Store, made: Callable[..., BotoS3], failure: str
) -> None:
    """The same exception, code and sentence as without our attempt before."""
    said = []
    for is_quick, attempts in ((False, 1), (True, 2)):
        store.spoiled = [FAILURES[failure]] * attempts
        with pytest.raises((S3Trouble, S3Error)) as caught:
            ASK["UploadPart"](made(is_quick=is_quick))
        said.append((type(caught.value), caught.value.code, str(caught.value)))

    assert said[0] == said[1]
    assert not store.spoiled


def test_a_store_that_has_too_much_to_do_sees_boto3s_pace(
    store: Store, made: Callable[..., BotoS3], clock: HandClock
) -> None:
    """After a failure boto3, which waits before it tries again, makes all requests for ten seconds."""
    store.spoiled = [FAILURES["throttled"]]
    s3 = made()
    ASK["ListParts"](s3)
    ASK["UploadPart"](s3)
    clock.now += REST - 0.1
    ASK["UploadPart"](s3)
    assert store.by == ["us", "boto3", "boto3", "boto3"]

    clock.now += 0.1
    ASK["UploadPart"](s3)
    assert store.by[4:] == ["us"]


@pytest.mark.parametrize(
    ("operation", "content"),
    [
        ("CreateMultipartUpload", b"<html>Please log in</html>"),
        ("CompleteMultipartUpload", b"   <Error><Code>InternalError</Code></Error>"),
        ("CompleteMultipartUpload", b""),
        (
            "ListParts",
            b"<ListPartsResult><IsTruncated>true</IsTruncated><Part><Size>3</Size></Part></ListPartsResult>",
        ),
        ("ListParts", b"<html>Please log in</html>"),
    ],
)
def test_a_success_without_what_was_asked_for_is_none(
    store: Store, made: Callable[..., BotoS3], operation: str, content: bytes
) -> None:
    """An answer counts if it is one of S3's, and whole; else boto3 asks again, and reads it in its way."""
    store.spoiled = [(200, content)]
    assert ASK[operation](made()) == ASK[operation](made(is_quick=False))
    assert store.by == ["us", "boto3", "boto3"]


def test_large_parts_are_boto3s(store: Store, made: Callable[..., BotoS3]) -> None:
    """boto3 asks the store before it sends megabytes."""
    made().upload_part(WHERE, "id", 1, bytes(5 * 1024 * 1024 + 1), "AAAAAA==")
    assert store.by == ["boto3"]


def test_without_keys_boto3_says_so(store: Store, made: Callable[..., BotoS3]) -> None:
    """Nothing is sent, and the error is the usual one."""
    s3 = made()
    with (
        mock.patch.object(s3._client._request_signer, "_credentials", None),
        pytest.raises(S3Error) as caught,
    ):  # type: ignore[attr-defined] # botocore's own
        ASK["UploadPart"](s3)
    assert caught.value.code == "NoCredentialsError"
    assert not store.seen


def test_keys_that_cannot_be_renewed_are_boto3s_matter(store: Store, made: Callable[..., BotoS3]) -> None:
    """Where a role cannot be assumed any more, boto3 tries, and tells."""
    s3 = made()
    ASK["UploadPart"](s3)
    expired = mock.Mock()
    expired.get_frozen_credentials.side_effect = boto.CredentialRetrievalError(
        provider="role", error_msg="no"
    )
    repeated = cast("RepeatedRequests", s3._repeated)
    repeated._credentials = lambda: expired
    with (
        mock.patch.object(s3._client._request_signer, "_credentials", expired),  # type: ignore[attr-defined] # botocore's own
        pytest.raises(S3Trouble) as caught,
    ):
        ASK["UploadPart"](s3)
    assert caught.value.code == NO_ANSWER


@given(
    key=st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30),
    upload=st.text(max_size=20),
    value=st.text(st.characters(codec="ascii", categories=["L", "N", "P", "Z"]), max_size=20),
    token=st.none() | st.just("a/token="),
    is_signed=st.booleans(),
    url=st.sampled_from(["https://bucket.s3.eu-north-1.amazonaws.com/", "http://127.0.0.1:9000/bucket/"]),
)
def test_signatures_are_botocores(
    *, key: str, upload: str, value: str, token: str | None, is_signed: bool, url: str
) -> None:
    """For any key and metadata: the same text in Authorization as botocore's signer writes."""
    keys = Credentials("key", "secret", token).get_frozen_credentials()
    pattern = Pattern("PUT", url, {"x-amz-acl": "private", "user-agent": "us"}, "eu-north-1/s3", is_signed)
    own = Own(key, {"uploadId": upload, "partNumber": "1"}, {"x-amz-meta-a": value}, b"body")
    moment = datetime(2026, 11, 25, 18, 30, tzinfo=UTC)
    ours = signed(pattern, own, keys, moment)

    request = AWSRequest(
        "PUT", str(ours.url), {"x-amz-acl": "private", "x-amz-meta-a": value, "User-Agent": "us"}, b"body"
    )
    request.context["client_config"] = Config(s3=cast("Any", {"payload_signing_enabled": is_signed}))
    with mock.patch("botocore.auth.get_current_datetime", return_value=moment.replace(tzinfo=None)):
        S3SigV4Auth(cast("Any", keys), "s3", "eu-north-1").add_auth(request)
    assert ours.headers["authorization"] == request.headers["Authorization"]
