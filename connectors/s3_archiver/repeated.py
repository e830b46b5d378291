"""Requests that differ in their key only, made by the example of the one that boto3 would make.

boto3 takes most of a millisecond of processor time for a request, whatever it holds, and a small file is four
of them. What takes the time is the same for each: which address a bucket has, which headers belong to an
operation, what is checked, which handlers are asked. So boto3 is asked once, for an example that is not sent;
from it requests are made and signed here, and sent through boto3's own connections.

Only success counts. Whatever else happens (no answer, throttling, a refusal, an answer that looks strange),
boto3 makes the request as if none had been made: it retries, waits, refreshes and redirects, and says what is
wrong. All these requests may be made twice. After a failure boto3 makes all of them for a while, so that a
store that has too much to do sees its pace.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from urllib.parse import quote, urlsplit

from botocore import exceptions as boto
from botocore import xform_name
from botocore.awsrequest import AWSPreparedRequest
from botocore.hooks import first_non_none_response

if TYPE_CHECKING:
    from botocore.credentials import Credentials
    from mypy_boto3_s3 import S3Client

REST: Final = 10.0
"""Seconds after a failure in which boto3 makes all requests."""

_KEY: Final = "sinksdk-example"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_UNSIGNED: Final = "UNSIGNED-PAYLOAD"
_OF_ONE_REQUEST: Final = (
    "authorization",
    "content-length",
    "expect",
    "host",
    "x-amz-content-sha256",
    "x-amz-date",
    "x-amz-security-token",
)
_NOT_SIGNED: Final = "user-agent"
_OK: Final = 200

_asking = threading.local()


class _Example(Exception):
    """boto3 was about to send this."""

    def __init__(self, request: AWSPreparedRequest) -> None:
        super().__init__()
        self.request = request


@contextmanager
def _not_sending() -> Iterator[None]:
    _asking.is_example = True
    try:
        yield
    finally:
        _asking.is_example = False


def _stop(request: AWSPreparedRequest, **_: object) -> None:
    """Before boto3 sends: raise the request if this thread only asks for an example."""
    if getattr(_asking, "is_example", False):
        raise _Example(request)


class Pattern(NamedTuple):
    """What is the same in all requests of an operation.

    Args:
        url: of the bucket, with the ``/`` before a key.
        headers: in small letters, without those that each request has for itself.
        scope: region and service that requests are signed for.
        is_signed: whether the signature covers the body.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    scope: str
    is_signed: bool


class Own(NamedTuple):
    """What a request has for itself.

    Args:
        query: of the address; all of it.
        headers: in small letters; they replace those of the example.
    """

    key: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | bytearray


class Answer(NamedTuple):
    """A success.

    Args:
        headers: by their names, in any letters.
    """

    headers: Mapping[str, str]
    content: bytes


class RepeatedRequests:
    """Makes requests of one client.

    Args:
        client: boto3's, which nobody has used yet.
        credentials: finds those that it signs with; None if there are none.
        clock: seconds, for the time after a failure.
    """

    def __init__(
        self,
        client: S3Client,
        credentials: Callable[[], Credentials | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._credentials = cache(credentials)
        self._clock = clock
        self._patterns: dict[tuple[str, str, tuple[tuple[str, object], ...]], Pattern | None] = {}
        self._rests_until = 0.0
        # boto3's connections, with its proxies, certificates and time-outs: not public, so they may move.
        endpoint = getattr(client, "_endpoint", None)
        self._send = getattr(getattr(endpoint, "http_session", None), "send", None)
        client.meta.events.register_first("before-send.s3", _stop)

    def ask(self, operation: str, bucket: str, own: Own, *, example: Mapping[str, Any]) -> Answer | None:
        """Make a request.

        Args:
            example: arguments of the operation that are the same in all of its requests, and any value for
                the others that boto3 insists on.

        Returns:
            None where boto3 must make it: there was no success, or nothing was sent.
        """
        if self._send is None or self._clock() < self._rests_until:
            return None
        kind = operation, bucket, tuple(sorted(example.items()))
        if kind not in self._patterns:
            self._patterns[kind] = self._pattern(operation, bucket, example)
        pattern = self._patterns[kind]
        if pattern is None:
            return None
        with suppress(boto.BotoCoreError, boto.ClientError, OSError):
            credentials = self._credentials()
            if credentials is None:  # the example was signed with some, so this cannot be
                return None
            request = signed(pattern, own, credentials.get_frozen_credentials(), datetime.now(UTC))
            handlers = self._client.meta.events.emit(f"before-send.s3.{operation}", request=request)
            answer = first_non_none_response(handlers) or self._send(request)
            content: bytes = answer.content
            if answer.status_code == _OK and b"<Error>" not in content[:1000]:
                return Answer(answer.headers, content)
        # boto3's turn; what it finds out (another region) is in the next examples.
        self._rests_until = self._clock() + REST
        self._patterns.clear()
        return None

    def _pattern(self, operation: str, bucket: str, example: Mapping[str, Any]) -> Pattern | None:
        """Ask boto3; None if it cannot say, or does something unknown here."""
        try:
            with _not_sending():
                getattr(self._client, xform_name(operation))(Bucket=bucket, Key=_KEY, **example)
        except _Example as found:
            return _pattern_of(found.request)
        except (boto.BotoCoreError, boto.ClientError):  # boto3 says it again, to who asks
            return None
        return None


def _pattern_of(request: AWSPreparedRequest) -> Pattern | None:
    headers = {name.lower(): _text(value) for name, value in request.headers.items()}
    address = str(request.url).partition("?")[0]
    authorization, covered = headers.get("authorization", ""), headers.get("x-amz-content-sha256", "")
    if (
        not authorization.startswith(f"{_ALGORITHM} Credential=")
        or not address.endswith(f"/{_KEY}")
        or covered.startswith("STREAMING-")
        or "transfer-encoding" in headers
    ):
        return None
    _, _, scope = authorization.partition("Credential=")[2].partition(",")[0].partition("/")
    return Pattern(
        str(request.method),
        address.removesuffix(_KEY),
        {
            name: value
            for name, value in headers.items()
            if name not in _OF_ONE_REQUEST and not name.startswith("amz-sdk-")
        },
        "/".join(scope.split("/")[1:3]),
        covered != _UNSIGNED,
    )


def signed(pattern: Pattern, own: Own, keys: Any, now: datetime) -> AWSPreparedRequest:
    """A request with its signature, of AWS's version 4.

    Args:
        keys: botocore's frozen credentials.
    """
    path, moment = quote(own.key, safe="/-._~"), now.strftime("%Y%m%dT%H%M%SZ")
    url = pattern.url + path
    parameters = "&".join(
        f"{quote(name, safe='-._~')}={quote(value, safe='-._~')}" for name, value in sorted(own.query.items())
    )
    address = urlsplit(url)
    is_default = address.port == {"http": 80, "https": 443}.get(address.scheme)
    whole = {
        **pattern.headers,
        **own.headers,
        "host": str(address.hostname) if address.port is None or is_default else address.netloc,
        "x-amz-content-sha256": hashlib.sha256(own.body).hexdigest() if pattern.is_signed else _UNSIGNED,
        "x-amz-date": moment,
        **({"x-amz-security-token": keys.token} if keys.token else {}),
    }
    names = sorted(name for name in whole if name != _NOT_SIGNED)
    listed = ";".join(names)
    canonical = "\n".join(
        [
            pattern.method,
            address.path,
            parameters,
            *(f"{name}:{' '.join(whole[name].split())}" for name in names),
            "",
            listed,
            whole["x-amz-content-sha256"],
        ]
    )
    scope = f"{moment[:8]}/{pattern.scope}/aws4_request"
    said = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = hmac.digest(_signing_key(keys.secret_key, scope), said.encode(), "sha256").hex()
    whole["authorization"] = (
        f"{_ALGORITHM} Credential={keys.access_key}/{scope}, SignedHeaders={listed}, Signature={signature}"
    )
    if pattern.method != "GET":
        whole["content-length"] = str(len(own.body))
    # Its headers go to urllib3 as they are, which takes any mapping.
    return AWSPreparedRequest(
        pattern.method, f"{url}?{parameters}", cast("Any", whole), own.body or None, False
    )


@lru_cache(maxsize=16)
def _signing_key(secret: str, scope: str) -> bytes:
    made = b"AWS4" + secret.encode()
    for part in scope.split("/"):
        made = hmac.digest(made, part.encode(), "sha256")
    return made


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
