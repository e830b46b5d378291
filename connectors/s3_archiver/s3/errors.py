"""What S3 answers, sorted into what passes and what does not.

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
ACCESS_DENIED: Final = "AccessDenied"

PASSING: Final = frozenset(
    {
        # Damaged on its way: the part is sent again from memory.
        *("BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"),
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
        *("RequestTimeout", "RequestTimeoutException"),
        *("KMS.DependencyTimeoutException", "KMS.InternalException", "KMS.KMSInternalException"),
        *("KMS.KeyUnavailableException", "KMS.ThrottlingException", "KMSThrottlingException"),
    }
)
"""Codes after which the same request may succeed."""

ROLE_REFUSED: Final = "AssumeRole."
"""Before STS's code when a role cannot be assumed."""

DENIED: Final = frozenset({ACCESS_DENIED, "AllAccessDisabled", "AccountProblem", "403", "Forbidden"})
"""Codes of a request that these credentials may not make."""

_CHECK_KEYS: Final = "check 'aws.access.key.id' and 'aws.secret.access.key', or the default credential chain"
_NAMES: Final = (
    "this endpoint has no names like that: take another 'topics.dir', or leave the topic out if its own name "
    "is too long (S3: 1,024 bytes in all; MinIO: 255 between two slashes, and a file's name begins with the "
    "topic's)"
)
_CHECK_REGION: Final = "the bucket is in another region: set 's3.region' to it"
_ADVICE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"), _CHECK_KEYS),
    **dict.fromkeys(("NoCredentialsError", "PartialCredentialsError"), _CHECK_KEYS),
    **dict.fromkeys(("PermanentRedirect", "AuthorizationHeaderMalformed", "301"), _CHECK_REGION),
    **dict.fromkeys(("KeyTooLongError", "XMinioInvalidObjectName"), _NAMES),
    "InvalidStorageClass": "set 's3.storage.class' to a class of this endpoint, or leave it out",
    "AccessControlListNotSupported": "the bucket takes no ACLs: leave 's3.acl.canned' out",
    **dict.fromkeys(
        (NOT_IMPLEMENTED, "501"),
        "this endpoint cannot do it: leave out what asks for it, as 's3.ssea.name' does for encryption, "
        "which MinIO has only with a KMS, and 's3.checksum' for checksums (auto finds one that works)",
    ),
    NO_SUCH_UPLOAD: "it was aborted or expired; its records are read again from the last commit",
}
_REFUSALS: Final = frozenset(
    {
        *(*DENIED, *_ADVICE, NO_SUCH_BUCKET, NO_SUCH_KEY, PRECONDITION_FAILED),
        *("EntityTooSmall", "InvalidArgument", "InvalidPart", "InvalidPartOrder", "InvalidRequest"),
    }
)
"""Codes whose status must not be believed: S3 can send them inside a 200, which looks like a 500."""

_PASSING_STATUS = frozenset({408, 409, 425, 429})
_FIRST_SERVER_ERROR = 500
_NOT_IMPLEMENTED = 501

NO_ANSWER: Final = "NoAnswer"
"""Our own code for connections refused, reset or timed out: the request may have taken effect or not."""


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


def is_passing(code: str, status: int | None = None) -> bool:
    """Whether the same request may succeed later.

    Args:
        code: S3's code; botocore writes the status there when the answer had no body.
        status: HTTP status, looked at only when the code is not one of S3's that we know.
    """
    if code in PASSING or code == NO_ANSWER:
        return True
    if code in _REFUSALS or code.startswith("KMS."):
        return False
    number = int(code) if code.isdecimal() else status
    if number == _NOT_IMPLEMENTED:
        return False
    return number is not None and (number >= _FIRST_SERVER_ERROR or number in _PASSING_STATUS)


def may_be_a_checksum(code: str) -> bool:
    """Return whether a refusal may be due to a checksum, which stores name in many ways.

    Those that have another cause for certain are known: permissions, names, encryption, storage class.
    """
    has_other_cause = code in DENIED or (code in _ADVICE and code != NOT_IMPLEMENTED)
    return not (has_other_cause or code == NO_SUCH_BUCKET or code.startswith(("KMS.", ROLE_REFUSED)))


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
    """The exception for one failed request, as a sentence that says what to do.

    Args:
        detail: S3's own words.
        status: HTTP status, if there was an answer.
    """
    what = f"{request} failed with {code}"
    if detail and detail != code:
        what += f" ({detail.rstrip('.')})"
    if is_passing(code, status):
        return S3Trouble(what, code)
    return S3Error(f"{what}: {_advice(request, code)}", code)


def _advice(request: Request, code: str) -> str:
    if code.startswith("KMS."):
        return "check that the key of 's3.sse.kms.key.id' is enabled and that these credentials may use it"
    if code.startswith(ROLE_REFUSED):
        return (
            "check 's3.credentials.provider.sts.role.arn' and its external id, and that the role trusts the "
            "credentials it is assumed with"
        )
    if code == NO_SUCH_BUCKET or (code == "404" and not request.key):
        return f"create the bucket, or correct 's3.bucket.name' (now '{request.bucket}') or 'store.url'"
    if code in DENIED:
        return f"grant these credentials {_permission(request.operation)} on this bucket"
    return _ADVICE.get(code, "S3 will not do this however often it is asked; look the code up in its manual")


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
