"""The objects below a bucket's prefix, conditional requests on them, and S3's errors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from botocore import exceptions as boto

from sinksdk.store.addresses import S3Address
from sinksdk.store.base import Lost, StoreRefused

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

# Values are small. A longer request is repeated: a task that waits here does not see a close request.
_CONNECT_TIMEOUT: Final = 3  # seconds
_READ_TIMEOUT: Final = 5  # seconds
MOST_CONNECTIONS: Final = 20
"""Of one process."""

CONDITION_FAILED: Final = frozenset({"PreconditionFailed", "412"})
MISSING: Final = frozenset({"NoSuchKey", "404"})

_PASSING: Final = frozenset(
    {
        "BandwidthLimitExceeded",
        "ConditionalRequestConflict",  # another conditional request on this key was under way
        "ExpiredToken",  # temporary credentials are renewed before the next attempt
        "IncompleteBody",
        "InternalError",
        "OperationAborted",
        "PriorRequestNotComplete",
        "RequestThrottled",
        "RequestTimeout",
        "ServiceUnavailable",
        "SlowDown",
        "SlowDownRead",
        "SlowDownWrite",
        "Throttling",
        "ThrottlingException",
        "KMS.DependencyTimeoutException",
        "KMS.InternalException",
        "KMS.KMSInternalException",
        "KMS.KeyUnavailableException",
        "KMS.ThrottlingException",
        "TooManyRequests",
    }
)
_PASSING_STATUS: Final = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR: Final = 500

NO_ANSWER: Final = (
    boto.ConnectionError,
    boto.HTTPClientError,
    boto.IncompleteReadError,
    boto.CredentialRetrievalError,
    boto.MetadataRetrievalError,
)
"""Errors of boto3 for requests without a complete response."""

_CREDENTIALS: Final = (
    "check 'access_key_id' and 'secret_access_key' in the store's URL, or what boto3 finds by itself "
    "(AWS_ACCESS_KEY_ID, ~/.aws, the machine's role)"
)
_REGION: Final = "the bucket is in another region: name it with region=… in the store's URL"
_DENIED: Final = (
    "grant these credentials s3:GetObject, s3:PutObject and s3:DeleteObject below the store's prefix, and "
    "s3:ListBucket on the bucket (without which a missing object looks like a denial)"
)
_NO_CONDITIONS: Final = "it knows no conditional writes; use another S3, or a store in PostgreSQL"
_ADVICE: Final = {
    "AccessDenied": _DENIED,
    "AllAccessDisabled": _DENIED,
    "403": _DENIED,
    "Forbidden": _DENIED,
    "NoSuchBucket": "create the bucket, or correct the store's URL",
    "InvalidBucketName": "correct the bucket in the store's URL",
    "InvalidAccessKeyId": _CREDENTIALS,
    "SignatureDoesNotMatch": _CREDENTIALS,
    "InvalidToken": _CREDENTIALS,
    "NoCredentialsError": _CREDENTIALS,
    "PartialCredentialsError": _CREDENTIALS,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "RequestTimeTooSkewed": "set this machine's clock",
    "NotImplemented": _NO_CONDITIONS,
    "501": _NO_CONDITIONS,
    "KeyTooLongError": "shorten the store's prefix or the connector's name",
}
_UNKNOWN: Final = "S3 will not do this however often it is asked; look the code up in its manual"


class Found(NamedTuple):
    """An object's body and ETag."""

    body: bytes
    etag: str


class Objects:
    """Requests on objects by their names below the prefix. Each is made once, without retries.

    All raise :class:`Lost` without a response or after a passing error, and :class:`StoreRefused`.
    """

    def __init__(self, address: S3Address) -> None:
        self._bucket = address.bucket
        self._server = replace(address, bucket="", prefix="")
        self._prefix = f"{address.prefix}/" if address.prefix else ""

    def read(self, name: str) -> Found | None:
        """An object; None if there is none."""

        def request(s3: S3Client) -> Found:
            answer = s3.get_object(Bucket=self._bucket, Key=self._prefix + name)
            with answer["Body"] as body:
                return Found(body.read(), answer["ETag"])

        return self._ask("GetObject", name, request, MISSING)

    def etag(self, name: str) -> str | None:
        """An object's ETag; None if there is none."""
        key = self._prefix + name
        return self._ask(
            "HeadObject", name, lambda s3: s3.head_object(Bucket=self._bucket, Key=key)["ETag"], MISSING
        )

    def create(self, name: str, body: bytes) -> str | None:
        """Write an object if there is none: its ETag; None if there is one."""
        return self._put(name, body, CONDITION_FAILED, IfNoneMatch="*")

    def replace(self, name: str, body: bytes, etag: str) -> str | None:
        """Replace an object if it still has this ETag: its new ETag; None if it has no or another one."""
        return self._put(name, body, CONDITION_FAILED | MISSING, IfMatch=etag)

    def _put(self, name: str, body: bytes, means_no: frozenset[str], **condition: Any) -> str | None:
        def request(s3: S3Client) -> str:
            return s3.put_object(
                Bucket=self._bucket,
                Key=self._prefix + name,
                Body=body,
                ContentType="application/json",
                **condition,
            )["ETag"]

        return self._ask("PutObject", name, request, means_no)

    def remove(self, name: str, etag: str | None) -> bool:
        """Delete an object if it still has this ETag (None: any)."""

        def request(s3: S3Client) -> bool:
            condition: Any = {} if etag is None else {"IfMatch": etag}
            s3.delete_object(Bucket=self._bucket, Key=self._prefix + name, **condition)
            return True

        return bool(self._ask("DeleteObject", name, request, CONDITION_FAILED | MISSING))

    def list(self, prefix: str) -> dict[str, int]:
        """The sizes of the objects whose names begin with a prefix, by name."""

        def request(s3: S3Client) -> dict[str, int]:
            listing = s3.get_paginator("list_objects_v2")
            pages = listing.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
            found = (item for page in pages for item in page.get("Contents", ()))
            return {item["Key"].removeprefix(self._prefix): item["Size"] for item in found}

        return self._ask("ListObjectsV2", prefix, request, frozenset()) or {}

    def _ask(
        self, operation: str, name: str, request: Callable[[S3Client], T], means_no: frozenset[str]
    ) -> T | None:
        """Make a request. None if S3 responds with an error code for a failed condition."""
        what = f"{operation} of s3://{self._bucket}/{self._prefix}{name}"
        try:
            return request(_client(self._server, os.getpid()))
        except boto.ClientError as failure:
            # botocore uses the HTTP status as code if a response has no body.
            error = failure.response.get("Error", {})
            code = str(error.get("Code", ""))
            if code in means_no:
                return None
            if _passes(code, failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode")):
                raise Lost(f"{what}: {code}") from failure
            raise _refused(what, code, error.get("Message", "")) from failure
        except NO_ANSWER as failure:
            raise Lost(f"{what}: {failure}") from failure
        except (boto.BotoCoreError, ValueError) as failure:  # no credentials, an impossible name
            raise _refused(what, type(failure).__name__, str(failure)) from failure


@lru_cache(maxsize=8)  # a session and a client cost about half a second
def _client(address: S3Address, _process: int) -> S3Client:
    """One client per process, for all buckets: a forked one must not share its parent's connections."""
    import boto3  # noqa: PLC0415 - 0.2 s, only for processes that use S3
    from botocore.config import Config  # noqa: PLC0415 - as above

    session = boto3.session.Session(
        aws_access_key_id=address.access_key_id or None,
        aws_secret_access_key=address.secret_access_key or None,
        aws_session_token=address.session_token or None,
        region_name=address.region or None,
    )
    return session.client(
        "s3",
        endpoint_url=address.endpoint or None,
        config=Config(
            s3={"addressing_style": "path" if address.is_path_style else "virtual"},
            retries={"mode": "standard", "total_max_attempts": 1},  # the store retries itself
            max_pool_connections=MOST_CONNECTIONS,
            connect_timeout=_CONNECT_TIMEOUT,
            read_timeout=_READ_TIMEOUT,
            tcp_keepalive=True,
            request_checksum_calculation="when_required",  # older MinIO and Ceph do not know them
            response_checksum_validation="when_required",
        ),
    )


def _refused(what: str, code: str, detail: str) -> StoreRefused:
    """The exception for a request that no retry can help, with what to do."""
    words = f" ({detail.rstrip('.')})" if detail and detail != code else ""
    return StoreRefused(f"S3 {what} failed with {code}{words}: {_ADVICE.get(code, _UNKNOWN)}")


def _passes(code: str, status: int | None) -> bool:
    """Codes decide; the HTTP status counts only for those that are not listed above."""
    if code in _PASSING or code in _ADVICE:
        return code in _PASSING
    number = int(code) if code.isdecimal() else status
    return number is not None and (number >= _FIRST_SERVER_ERROR or number in _PASSING_STATUS)
