"""The errors of requests to S3, and what to do about them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from sinksdk import ConnectException, RetriableException
from sinksdk.support.s3 import KMS, NO_RESPONSE, NO_SUCH_KEY, PRECONDITION_FAILED, Failure
from sinksdk.support.s3 import is_transient as is_transient_code

NO_SUCH_UPLOAD: Final = "NoSuchUpload"
NO_SUCH_BUCKET: Final = "NoSuchBucket"
NOT_IMPLEMENTED: Final = "NotImplemented"
ACCESS_DENIED: Final = "AccessDenied"
ROLE_REFUSED: Final = "AssumeRole."  # prefix of the codes of STS

_CHECK_KEYS: Final = "check 'aws.access.key.id' and 'aws.secret.access.key', or the default credential chain"
_GRANT: Final = "grant these credentials {permission} on this bucket"
_CREATE: Final = "create the bucket, or correct 's3.bucket.name' (now '{bucket}') or 'store.url'"
_UNKNOWN: Final = "S3 refuses this permanently; see the code in the endpoint's documentation"
_ADVICE: Final[Mapping[tuple[str, ...], str]] = {
    (ACCESS_DENIED, "AllAccessDisabled", "AccountProblem", "403", "Forbidden"): _GRANT,
    (NO_SUCH_BUCKET,): _CREATE,
    ("InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"): _CHECK_KEYS,
    ("NoCredentialsError", "PartialCredentialsError"): _CHECK_KEYS,
    ("PermanentRedirect", "AuthorizationHeaderMalformed", "301"): (
        "the bucket is in another region: set 's3.region' to that region"
    ),
    ("KeyTooLongError", "XMinioInvalidObjectName"): (
        "this endpoint does not allow this key: set another 'topics.dir', or leave the topic out if its own "
        "name is too long (S3: 1,024 bytes for the key; MinIO: 255 between two slashes, and a file's name "
        "begins with the topic's)"
    ),
    ("InvalidStorageClass",): "set 's3.storage.class' to a class of this endpoint, or remove it",
    ("AccessControlListNotSupported",): "the bucket does not accept ACLs: remove 's3.acl.canned'",
    (NOT_IMPLEMENTED, "501"): (
        "this endpoint does not support the request: remove the setting that causes it, such as "
        "'s3.ssea.name' (MinIO encrypts only with a KMS) or 's3.checksum' (auto finds one that works)"
    ),
    (NO_SUCH_UPLOAD,): "the upload was aborted or expired; its records are read again from the last commit",
    # S3 can send these codes inside a response with status 200.
    (NO_SUCH_KEY, PRECONDITION_FAILED): _UNKNOWN,
    ("EntityTooSmall", "InvalidArgument", "InvalidPart", "InvalidPartOrder", "InvalidRequest"): _UNKNOWN,
}

_ADVICE_OF: Final = {code: advice for codes, advice in _ADVICE.items() for code in codes}

DENIED: Final = frozenset(code for code, advice in _ADVICE_OF.items() if advice == _GRANT)

# Endpoints without checksums refuse a HeadObject with these; 404 and 403 have other causes.
REFUSED_HEADERS: Final = frozenset({NOT_IMPLEMENTED, "501", "400", "BadRequest", "InvalidArgument"})


class _Coded(ConnectException):
    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (str(self), self.code)


class S3Error(_Coded):
    """S3 refused a request for good."""


class S3TransientError(_Coded, RetriableException):
    """A request failed and may succeed later."""


def is_transient(code: str, status: int | None = None) -> bool:
    return is_transient_code(code, status, _ADVICE_OF)


def may_be_a_checksum(code: str) -> bool:
    # A store refuses a checksum with any of many codes.
    has_other_cause = _ADVICE_OF.get(code) not in (None, _UNKNOWN) and code != NOT_IMPLEMENTED
    return not (has_other_cause or code.startswith((KMS, ROLE_REFUSED)))


class Request(NamedTuple):
    operation: str
    bucket: str
    key: str
    endpoint: str

    def __str__(self) -> str:
        where = f"s3://{self.bucket}/{self.key}" if self.key else f"bucket {self.bucket}"
        return f"S3 {self.operation} of {where} at {self.endpoint}"


def error_of(
    request: Request, code: str, detail: str, status: int | None = None
) -> S3Error | S3TransientError:
    message = f"{request} failed with {Failure(code, detail)}"
    if is_transient(code, status):
        return S3TransientError(message, code)
    return S3Error(f"{message}: {_advice(request, code)}", code)


def _advice(request: Request, code: str) -> str:
    if code.startswith(KMS):
        return "check that the key of 's3.sse.kms.key.id' is enabled and that these credentials may use it"
    if code.startswith(ROLE_REFUSED):
        return (
            "check 's3.credentials.provider.sts.role.arn' and its external id, and that the role's trust "
            "policy allows these credentials"
        )
    advice = _CREATE if code == "404" and not request.key else _ADVICE_OF.get(code) or _UNKNOWN
    return advice.format(permission=_permission(request.operation), bucket=request.bucket)


def _permission(operation: str) -> str:
    return {
        "HeadBucket": "s3:ListBucket",
        "ListObjectsV2": "s3:ListBucket",
        "ListMultipartUploads": "s3:ListBucketMultipartUploads",
        "ListParts": "s3:ListMultipartUploadParts",
        "HeadObject": "s3:GetObject (and s3:ListBucket; without it S3 denies access to missing objects)",
        "GetObject": "s3:GetObject (and s3:ListBucket; without it S3 denies access to missing objects)",
        "AbortMultipartUpload": "s3:AbortMultipartUpload",
        "PutObjectTagging": "s3:PutObjectTagging",
    }.get(
        operation,
        "s3:PutObject (and s3:PutObjectAcl for 's3.acl.canned', and kms:GenerateDataKey and kms:Decrypt "
        "where the bucket uses KMS)",
    )


def inaccessible_bucket(bucket: str, endpoint: str, error: S3Error | S3TransientError) -> str:
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
    if error.code == NO_RESPONSE:
        return (
            f"no S3 endpoint responds at {endpoint}: check 'store.url', 's3.region' and the network ({error})"
        )
    return str(error)
