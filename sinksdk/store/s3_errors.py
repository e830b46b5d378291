"""What S3 answers to a store, sorted into what passes and what never will.

Codes decide, not HTTP statuses; the status counts only for codes nobody knows.
"""

from __future__ import annotations

from typing import Final

from botocore import exceptions as boto

from sinksdk.store.base import Lost, StoreRefused

CONDITION_FAILED: Final = frozenset({"PreconditionFailed", "412"})
"""botocore puts the status where an answer has no body, and so no code."""

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
"""What boto3 raises when there was no whole answer."""

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


def code_of(failure: boto.ClientError) -> str:
    """S3's error code; the HTTP status where the answer had none."""
    return str(failure.response.get("Error", {}).get("Code", ""))


def answered(failure: boto.ClientError, operation: str, where: str) -> Lost | StoreRefused:
    """What an error answer means for a request that it does not settle."""
    code = code_of(failure)
    status = failure.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    if code in _PASSING or (code not in _ADVICE and _passes(code, status)):
        return Lost(f"{operation} of {where}: {code}")
    return refused(code, failure.response.get("Error", {}).get("Message", ""), operation, where)


def refused(code: str, detail: str, operation: str, where: str) -> StoreRefused:
    """A request that will never succeed, with what to do."""
    words = f" ({detail.rstrip('.')})" if detail and detail != code else ""
    advice = _ADVICE.get(code, _UNKNOWN)
    return StoreRefused(f"S3 {operation} of {where} failed with {code}{words}: {advice}")


def _passes(code: str, status: int | None) -> bool:
    number = int(code) if code.isdecimal() else status
    return number is not None and (number >= _FIRST_SERVER_ERROR or number in _PASSING_STATUS)
