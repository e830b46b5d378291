"""Errors of S3 by their codes: which are transient, and what to do about the others.

Codes decide, not HTTP statuses: S3 can answer 200 with an error inside, which the client library
shows as a 500, and a status of 403 means a dozen different things. The status counts only where
there is no code, or an unknown one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sinksdk import ConnectException, RetriableException

NO_SUCH_UPLOAD: Final = "NoSuchUpload"
NO_SUCH_KEY: Final = "NoSuchKey"
NO_SUCH_BUCKET: Final = "NoSuchBucket"
PRECONDITION_FAILED: Final = "PreconditionFailed"
NOT_IMPLEMENTED: Final = "NotImplemented"
CONFLICT: Final = "ConditionalRequestConflict"
BAD_DIGEST: Final = "BadDigest"
ACCESS_DENIED: Final = "AccessDenied"
NO_ANSWER: Final = "NoAnswer"
"""Our own code for connections refused, reset or timed out: the request may have taken effect or not."""

ROLE_REFUSED: Final = "AssumeRole."
"""Prefix of STS's code when a role cannot be assumed."""

_KMS: Final = "KMS."
_TRANSIENT: Final = (
    # Damaged on the way: the part is sent again from memory.
    *(BAD_DIGEST, "IncompleteBody", "XAmzContentSHA256Mismatch"),
    # Temporary credentials are renewed before the next attempt.
    *("ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"),
    # Another request is in the way.
    *(CONFLICT, "OperationAborted", "PriorRequestNotComplete"),
    # Too many requests.
    *("BandwidthLimitExceeded", "RequestLimitExceeded", "RequestThrottled", "RequestThrottledException"),
    *("SlowDown", "SlowDownRead", "SlowDownWrite", "TooManyRequests", "TooManyRequestsException"),
    *("Throttling", "ThrottlingException", "ThrottledException"),
    # S3 or the key service is not well.
    *("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable"),
    *("RequestTimeout", "RequestTimeoutException", NO_ANSWER),
    *("KMS.DependencyTimeoutException", "KMS.InternalException", "KMS.KMSInternalException"),
    *("KMS.KeyUnavailableException", "KMS.ThrottlingException", "KMSThrottlingException"),
)
_CHECK_KEYS: Final = "check 'aws.access.key.id' and 'aws.secret.access.key', or the default credential chain"
_GRANT: Final = "grant these credentials {permission} on this bucket"
_CREATE: Final = "create the bucket, or correct 's3.bucket.name' (now '{bucket}') or 'store.url'"
_UNKNOWN: Final = "S3 refuses this permanently; look the code up in its manual"
_ADVICE: Final[Mapping[tuple[str, ...], str]] = {
    (ACCESS_DENIED, "AllAccessDisabled", "AccountProblem", "403", "Forbidden"): _GRANT,
    (NO_SUCH_BUCKET,): _CREATE,
    ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"): _CHECK_KEYS,
    ("NoCredentialsError", "PartialCredentialsError"): _CHECK_KEYS,
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "301"): (
        "the bucket is in another region: set 's3.region' to it"
    ),
    ("KeyTooLongError", "XMinioInvalidObjectName"): (
        "this endpoint has no names like that: take another 'topics.dir', or leave the topic out if its own "
        "name is too long (S3: 1,024 bytes in all; MinIO: 255 between two slashes, and a file's name begins "
        "with the topic's)"
    ),
    ("InvalidStorageClass",): "set 's3.storage.class' to a class of this endpoint, or leave it out",
    ("AccessControlListNotSupported",): "the bucket takes no ACLs: leave 's3.acl.canned' out",
    (NOT_IMPLEMENTED, "501"): (
        "this endpoint cannot do it: leave out what asks for it, as 's3.ssea.name' does for encryption, "
        "which MinIO has only with a KMS, and 's3.checksum' for checksums (auto finds one that works)"
    ),
    (NO_SUCH_UPLOAD,): "it was aborted or expired; its records are read again from the last commit",
    # S3 can send these inside a 200, which looks like a 500: their status must not decide.
    (NO_SUCH_KEY, PRECONDITION_FAILED): _UNKNOWN,
    ("EntityTooSmall", "InvalidArgument", "InvalidPart", "InvalidPartOrder", "InvalidRequest"): _UNKNOWN,
}
"""What to do about refusals, by their codes."""

_CODES: Final[Mapping[str, str | None]] = {
    **dict.fromkeys(_TRANSIENT),
    **{code: advice for codes, advice in _ADVICE.items() for code in codes},
}
"""Every known code with what to do about it; None: the same request may succeed later."""

DENIED: Final = frozenset(code for code, advice in _CODES.items() if advice == _GRANT)
"""Codes of a request that these credentials may not make."""

MISSING: Final = frozenset({"404", NO_SUCH_KEY, "NotFound"})
"""Codes of HeadObject for an object that does not exist; a HEAD response has no body to name one."""

CONDITION_FAILED: Final = frozenset({PRECONDITION_FAILED, "412", "304", "NotModified"})  # S3Mock: 304
"""Codes of a request whose condition does not hold."""

REFUSED_HEADERS: Final = frozenset({NOT_IMPLEMENTED, "501", "400", "BadRequest", "InvalidArgument"})
"""Codes of a HeadObject that requests a checksum, from endpoints that have none; 404 and 403 do not say."""

_TRANSIENT_STATUS = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR = 500
_NOT_IMPLEMENTED = 501


class _Coded(ConnectException):
    """A failed request. :attr:`code` is S3's own, or :data:`NO_ANSWER`."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code)


class S3Error(_Coded):
    """S3 refused a request for good."""


class S3Trouble(_Coded, RetriableException):
    """S3 did not do it now."""


def is_transient(code: str, status: int | None = None) -> bool:
    """Return whether the same request may succeed later.

    Args:
        code: S3's code; botocore writes the status there when the response has no body.
        status: HTTP status, which counts only for unknown codes.
    """
    if code in _CODES:
        return _CODES[code] is None
    if code.startswith(_KMS):
        return False
    number = int(code) if code.isdecimal() else status
    if number is None or number == _NOT_IMPLEMENTED:
        return False
    return number >= _FIRST_SERVER_ERROR or number in _TRANSIENT_STATUS


def may_be_a_checksum(code: str) -> bool:
    """Return whether a checksum may be the cause of a refusal, which stores name in many ways."""
    has_other_cause = _CODES.get(code) not in (None, _UNKNOWN) and code != NOT_IMPLEMENTED
    return not (has_other_cause or code.startswith((_KMS, ROLE_REFUSED)))


class Request(NamedTuple):
    """A request: S3's name of the operation, the object, and the endpoint."""

    operation: str
    bucket: str
    key: str
    endpoint: str

    def __str__(self) -> str:
        where = f"s3://{self.bucket}/{self.key}" if self.key else f"bucket {self.bucket}"
        return f"S3 {self.operation} of {where} at {self.endpoint}"


def failure_of(request: Request, code: str, detail: str, status: int | None = None) -> S3Error | S3Trouble:
    """Return the exception for a failed request, whose message says what to do.

    Args:
        detail: S3's own words.
        status: HTTP status, if there was a response.
    """
    what = f"{request} failed with {code}"
    if detail and detail != code:
        what += f" ({detail.rstrip('.')})"
    if is_transient(code, status):
        return S3Trouble(what, code)
    return S3Error(f"{what}: {_advice(request, code)}", code)


def _advice(request: Request, code: str) -> str:
    if code.startswith(_KMS):
        return "check that the key of 's3.sse.kms.key.id' is enabled and that these credentials may use it"
    if code.startswith(ROLE_REFUSED):
        return (
            "check 's3.credentials.provider.sts.role.arn' and its external id, and that the role trusts the "
            "credentials it is assumed with"
        )
    advice = _CREATE if code == "404" and not request.key else _CODES.get(code) or _UNKNOWN
    return advice.format(permission=_permission(request.operation), bucket=request.bucket)


def _permission(operation: str) -> str:
    return {
        "HeadBucket": "s3:ListBucket",
        "ListObjectsV2": "s3:ListBucket",
        "ListMultipartUploads": "s3:ListBucketMultipartUploads",
        "ListParts": "s3:ListMultipartUploadParts",
        "HeadObject": "s3:GetObject (and s3:ListBucket, without which a missing object looks like a denial)",
        "GetObject": "s3:GetObject (and s3:ListBucket, without which a missing object looks like a denial)",
        "AbortMultipartUpload": "s3:AbortMultipartUpload",
        "PutObjectTagging": "s3:PutObjectTagging",
    }.get(
        operation,
        "s3:PutObject (and s3:PutObjectAcl for 's3.acl.canned', and kms:GenerateDataKey and kms:Decrypt "
        "where the bucket uses KMS)",
    )


def bucket_problem(bucket: str, endpoint: str, error: S3Error | S3Trouble) -> str:
    """Return why a connector cannot use its bucket, and what to do.

    Args:
        endpoint: its address or region, in words.
    """
    if error.code in ("404", NO_SUCH_BUCKET):
        return (
            f"bucket '{bucket}' does not exist at {endpoint}: create it, or correct 's3.bucket.name' or "
            f"'store.url'"
        )
    if error.code in ("403", ACCESS_DENIED):
        return (
            f"access to bucket '{bucket}' at {endpoint} is denied: check the credentials, and grant them "
            f"s3:ListBucket, s3:GetObject, s3:PutObject and s3:AbortMultipartUpload"
        )
    if error.code == NO_ANSWER:
        return (
            f"no S3 endpoint responds at {endpoint}: check 'store.url', 's3.region' and the network ({error})"
        )
    return str(error)
