"""Clients of S3 and the codes of its errors, for commit stores and connectors.

Codes decide, not HTTP statuses: S3 can send an error inside a 200, which boto3 shows as a 500, and a 403
means a dozen things.
"""

from __future__ import annotations

import logging
from collections.abc import Container
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from boto3.session import Session
    from mypy_boto3_s3 import S3Client

NO_SUCH_KEY: Final = "NoSuchKey"
PRECONDITION_FAILED: Final = "PreconditionFailed"
CONFLICT: Final = "ConditionalRequestConflict"
BAD_DIGEST: Final = "BadDigest"
# sinksdk's own code: the connection was refused, reset or timed out. The request may have taken effect.
NO_RESPONSE: Final = "NoResponse"
KMS: Final = "KMS."  # prefix of the codes of KMS

# A HEAD response has no body to name a code.
MISSING: Final = frozenset({"404", NO_SUCH_KEY, "NotFound"})
CONDITION_FAILED: Final = frozenset({PRECONDITION_FAILED, "412", "304", "NotModified"})  # S3Mock sends 304

_TRANSIENT: Final = frozenset(
    {
        # Data was damaged in transit: the body is sent again from memory.
        *(BAD_DIGEST, "IncompleteBody", "XAmzContentSHA256Mismatch"),
        # Temporary credentials are renewed before the next attempt.
        *("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"),
        # A concurrent request caused a conflict.
        *(CONFLICT, "OperationAborted", "PriorRequestNotComplete"),
        # There were too many requests.
        *("BandwidthLimitExceeded", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException"),
        *("SlowDown", "SlowDownRead", "SlowDownWrite", "TooManyRequests", "TooManyRequestsException"),
        *("Throttling", "ThrottlingException", "ThrottledException"),
        # S3 or KMS is unavailable.
        *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable"),
        *("RequestTimeout", "RequestTimeoutException", NO_RESPONSE),
        *("KMS.DependencyTimeoutException", "KMS.InternalException", "KMS.KMSInternalException"),
        *("KMS.KeyUnavailableException", "KMS.ThrottlingException", "KMSThrottlingException"),
    }
)
_TRANSIENT_STATUS: Final = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR: Final = 500
_NOT_IMPLEMENTED: Final = 501


class Failure(NamedTuple):
    code: str
    detail: str
    status: int | None = None
    operation: str = ""

    def __str__(self) -> str:
        has_detail = self.detail and self.detail != self.code
        return f"{self.code} ({self.detail.rstrip('.')})" if has_detail else self.code


def failure_of(error: Exception) -> Failure | None:
    """Return what failed in a request with boto3; None for an error that is not boto3's."""
    from botocore import exceptions as boto  # noqa: PLC0415 - slow to load, and an extra

    if isinstance(error, boto.ClientError):
        # botocore writes the status into the code when the response has no body.
        said, status = error.response.get("Error", {}), error.response.get("ResponseMetadata", {})
        number = status.get("HTTPStatusCode")
        code, detail = str(said.get("Code", number)), str(said.get("Message", ""))
        return Failure(code, detail, number, error.operation_name)
    if isinstance(
        error,
        boto.ConnectionError
        | boto.HTTPClientError
        | boto.IncompleteReadError
        | boto.CredentialRetrievalError
        | boto.MetadataRetrievalError,
    ):
        return Failure(NO_RESPONSE, str(error))
    # Other errors of botocore: no credentials, an impossible region or bucket name.
    return Failure(type(error).__name__, str(error)) if isinstance(error, boto.BotoCoreError) else None


def is_transient(code: str, status: int | None, permanent: Container[str]) -> bool:
    """Return whether a request may succeed later; the status counts for codes that are not listed."""
    if code in _TRANSIENT:
        return True
    if code in permanent or code.startswith(KMS):
        return False
    number = int(code) if code.isdecimal() else status
    if number is None or number == _NOT_IMPLEMENTED:
        return False
    return number >= _FIRST_SERVER_ERROR or number in _TRANSIENT_STATUS


def create_client(
    session: Session, endpoint: str, *, is_path_style: bool, s3: dict[str, Any] | None = None, **config: Any
) -> S3Client:
    """Create a client, which costs about half a second; ``config`` is botocore's."""
    from botocore.config import Config  # noqa: PLC0415 - as above

    # A program that embeds sinksdk configures logging itself, so the filter is set here.
    logging.getLogger("urllib3.connectionpool").addFilter(_is_not_full_pool_warning)
    style: Any = {"addressing_style": "path" if is_path_style else "virtual", **(s3 or {})}
    return session.client(
        "s3",
        endpoint_url=endpoint or None,
        config=Config(
            s3=style,
            tcp_keepalive=True,
            # Older MinIO and Ceph, and S3Proxy, refuse the headers; the archiver names checksums itself.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            **config,
        ),
    )


def _is_not_full_pool_warning(record: logging.LogRecord) -> bool:
    # urllib3 warns when it closes a connection because the pool is full. Tasks and connectors that start
    # concurrently share one client, whose pool only bounds how many connections stay open: nothing is lost.
    return not str(record.msg).startswith("Connection pool is full")
