"""A store on S3: one object per key, written by conditional PutObject only."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from sinksdk.errors import ConfigException
from sinksdk.store.addresses import S3Address
from sinksdk.store.base import Lost, Store, Stored, StoreRefused, StoreUnreadable, outage_of
from sinksdk.support.delays import S3_STORE
from sinksdk.support.s3 import (
    CONDITION_FAILED,
    MISSING,
    NO_RESPONSE,
    Failure,
    create_client,
    failure_of,
    is_transient,
)

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

T = TypeVar("T")

_MARK: Final = "!store"  # name of an object; no encoded key is equal to it

_FORMAT: Final = 1  # format of the whole store: its keys, and the names of its objects
_PROBES: Final = "!probe/"  # prefix of probe objects; no encoded key begins with it
_WRONG_ETAG: Final = f'"{0:032x}"'
_OPENING: Final = 5.0  # seconds: the user who starts a driver waits for the message

# Values are small. A request that takes longer is repeated, because a task that waits here does not see a
# close request.
_CONNECT_TIMEOUT: Final = 3  # seconds
_READ_TIMEOUT: Final = 5  # seconds
_MOST_CONNECTIONS: Final = 20  # connections of one process

_CREDENTIALS: Final = (
    "check 'access_key_id' and 'secret_access_key' in the store's URL, or the credentials that boto3 finds "
    "itself (AWS_ACCESS_KEY_ID, ~/.aws, the machine's role)"
)
_REGION: Final = "the bucket is in another region: name it with region=… in the store's URL"
_DENIED: Final = (
    "grant these credentials s3:GetObject, s3:PutObject and s3:DeleteObject below the store's prefix, and "
    "s3:ListBucket on the bucket (without s3:ListBucket, S3 denies access to missing objects)"
)
_NO_CONDITIONS: Final = (
    "this S3 does not support conditional writes; use another one, or a store in PostgreSQL"
)
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
_UNKNOWN: Final = "retries do not help; look the code up in the manual of your S3"


class _Found(NamedTuple):
    body: bytes
    etag: str


class _Objects:
    """Requests on objects by name, each made once.

    All raise :class:`Lost` after a transient error, and :class:`StoreRefused`.
    """

    def __init__(self, address: S3Address) -> None:
        self._bucket = address.bucket
        self._server = replace(address, bucket="", prefix="")
        self._prefix = f"{address.prefix}/" if address.prefix else ""

    def read(self, name: str) -> _Found | None:
        def request(s3: S3Client) -> _Found:
            response = s3.get_object(Bucket=self._bucket, Key=self._prefix + name)
            with response["Body"] as body:
                return _Found(body.read(), response["ETag"])

        return self._request("GetObject", name, request, MISSING)

    def etag(self, name: str) -> str | None:
        key = self._prefix + name
        return self._request(
            "HeadObject", name, lambda s3: s3.head_object(Bucket=self._bucket, Key=key)["ETag"], MISSING
        )

    def create(self, name: str, body: bytes) -> str | None:
        """Write an object if there is none; return its ETag, or None."""
        return self._put(name, body, CONDITION_FAILED, IfNoneMatch="*")

    def replace(self, name: str, body: bytes, etag: str) -> str | None:
        """Replace an object that has this ETag; return its new ETag, or None."""
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

        return self._request("PutObject", name, request, means_no)

    def remove(self, name: str, etag: str | None) -> bool:
        def request(s3: S3Client) -> bool:
            condition: Any = {} if etag is None else {"IfMatch": etag}
            s3.delete_object(Bucket=self._bucket, Key=self._prefix + name, **condition)
            return True

        return bool(self._request("DeleteObject", name, request, CONDITION_FAILED | MISSING))

    def list(self, prefix: str) -> dict[str, int]:
        def request(s3: S3Client) -> dict[str, int]:
            listing = s3.get_paginator("list_objects_v2")
            pages = listing.paginate(Bucket=self._bucket, Prefix=self._prefix + prefix)
            found = (item for page in pages for item in page.get("Contents", ()))
            return {item["Key"].removeprefix(self._prefix): item["Size"] for item in found}

        return self._request("ListObjectsV2", prefix, request, frozenset()) or {}

    def _request(
        self, operation: str, name: str, request: Callable[[S3Client], T], means_no: frozenset[str]
    ) -> T | None:
        """Make a request; None: S3 responds with one of the codes ``means_no``."""
        what = f"{operation} of s3://{self._bucket}/{self._prefix}{name}"
        try:
            return request(_client(self._server, os.getpid()))
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                if not isinstance(error, ValueError):  # S3 cannot have an object of this name
                    raise
                failure = Failure(type(error).__name__, str(error))
            if failure.code in means_no:
                return None
            if is_transient(failure.code, failure.status, _ADVICE):
                why = failure.detail if failure.code == NO_RESPONSE else failure.code
                raise Lost(f"{what}: {why}") from error
            advice = _ADVICE.get(failure.code, _UNKNOWN)
            raise StoreRefused(f"S3 {what} failed with {failure}: {advice}") from error


# One client per process and server: a forked process must not share its parent's connections.
@lru_cache(maxsize=8)  # a session and a client cost about half a second
def _client(address: S3Address, _process: int) -> S3Client:
    import boto3  # noqa: PLC0415 - 0.2 s, only for processes that use S3

    session = boto3.session.Session(
        aws_access_key_id=address.access_key_id or None,
        aws_secret_access_key=address.secret_access_key or None,
        aws_session_token=address.session_token or None,
        region_name=address.region or None,
    )
    return create_client(
        session,
        address.endpoint,
        is_path_style=address.is_path_style,
        retries={"mode": "standard", "total_max_attempts": 1},  # the store itself retries
        max_pool_connections=_MOST_CONNECTIONS,
        connect_timeout=_CONNECT_TIMEOUT,
        read_timeout=_READ_TIMEOUT,
    )


class S3Store(Store):
    """Objects below a prefix, which ``create`` marks as a store if the endpoint honours conditions."""

    closing_poll = 5.0  # seconds: a check is two requests, which cost money
    most_entries = 256  # large, because a request costs more than its bytes
    most_at_once = _MOST_CONNECTIONS  # as many as there are connections, because a request mostly waits
    delays = S3_STORE

    def __init__(
        self,
        address: S3Address,
        *,
        create: bool = False,
        patience: float = S3_STORE.total,
        pause: float = S3_STORE.first,
    ) -> None:
        super().__init__(patience=min(patience, _OPENING) if create else patience, pause=pause)
        self._address = address
        self._outage = outage_of(self.url)
        self._objects = _Objects(address)
        # Version and ETag of each key. Conditions need ETags, which never repeat, because each body has a
        # nonce.
        self._etags: dict[str, tuple[str, str]] = {}
        # Whether the endpoint deletes conditionally; None until the first deletion.
        self._deletes: bool | None = None
        try:
            self._open(create=create)
        except StoreRefused as error:
            raise ConfigException(f"store {self.url} cannot be opened: {error}") from error
        self._patience = patience

    @property
    def url(self) -> str:
        return str(self._address)

    def _open(self, *, create: bool) -> None:
        if create:
            self._check_conditional_writes()
            body = json.dumps({"what": "a store of sinksdk", "format": _FORMAT}).encode()
            if self._request(lambda: self._objects.create(_MARK, body), "creating it"):
                return
        mark = self._request(lambda: self._objects.read(_MARK), "opening it")
        if mark is None:
            raise ConfigException(
                f"store {self.url} does not exist: check bucket and prefix, or start a driver with this URL, "
                f"which creates the store"
            )
        try:
            found = json.loads(mark.body)["format"]
        except (ValueError, KeyError, TypeError) as error:
            raise StoreUnreadable(
                f"store {self.url} is damaged ({_MARK}: {type(error).__name__}); restore it from a backup"
            ) from error
        if found != _FORMAT:
            raise StoreUnreadable(
                f"store {self.url} has a format that this version of sinksdk does not know; upgrade sinksdk"
            )

    def _probe(self, request: Callable[[], T]) -> T:
        return self._request(request, "probing")

    def _check_conditional_writes(self) -> None:
        # Endpoints that ignore a condition, instead of responding with 501, let two drivers own a connector.
        objects, first, second = self._objects, b'{"probe": 1}', b'{"probe": 2}'
        name = f"{_PROBES}{uuid.uuid4().hex}"
        try:
            # A condition may fail because of an earlier attempt of this process whose response was lost.
            self._probe(lambda: objects.create(name, first))
            found = self._probe(lambda: objects.read(name))
            if found is None:
                raise _ignored(self.url, "If-None-Match", "did not create a missing object")
            if self._probe(lambda: objects.create(name, second)):
                raise _ignored(self.url, "If-None-Match", "overwrote an existing object")
            if self._probe(lambda: objects.replace(name, second, _WRONG_ETAG)):
                raise _ignored(self.url, "If-Match", "overwrote an object with another ETag")
            if not self._probe(lambda: objects.replace(name, second, found.etag)):
                now = self._probe(lambda: objects.read(name))
                if now is None or now.body != second:
                    raise _ignored(self.url, "If-Match", "did not recognize its own ETag")
        finally:
            self._probe(lambda: objects.remove(name, None))

    def _deletes_conditionally(self) -> bool:
        name = f"{_PROBES}{uuid.uuid4().hex}"
        self._probe(lambda: self._objects.create(name, b"{}"))
        try:
            # Some endpoints honour the conditions of PutObject only.
            return not self._probe(lambda: self._objects.remove(name, _WRONG_ETAG))
        except StoreRefused:
            return False
        finally:
            self._probe(lambda: self._objects.remove(name, None))

    def _read(self, key: str) -> Stored | None:
        found = self._objects.read(_name(key))
        if found is None or not found.body:
            self._etags.pop(key, None)
            return None
        try:
            body = found.body.decode()
            stored = Stored(body, json.loads(body)["nonce"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreUnreadable(
                f"store {self.url}: the object under {key} was not written by sinksdk; remove it, or "
                f"restore the store from a backup"
            ) from error
        self._etags[key] = stored.version, found.etag
        return stored

    def _version(self, key: str) -> str | None:
        known = self._etags.get(key)
        # HeadObject is enough while the ETag is known; otherwise the version is in the body.
        if known is not None and self._objects.etag(_name(key)) == known[1]:
            return known[0]
        return super()._version(key)

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        body = stored.body.encode()
        if if_version is None:
            etag = self._objects.create(_name(key), body) or self._replace_deleted(key, body)
        elif (known := self._etag(key, if_version)) is not None:
            etag = self._objects.replace(_name(key), body, known)
        else:
            return False
        if etag is None:
            return False
        self._etags[key] = stored.version, etag
        return True

    def _replace_deleted(self, key: str, body: bytes) -> str | None:
        if self._deletes:
            return None
        found = self._objects.read(_name(key))
        if found is None:
            raise Lost(f"another process deleted {key} between two requests")
        # An empty object is a deleted key.
        return None if found.body else self._objects.replace(_name(key), body, found.etag)

    def _remove(self, key: str, if_version: str) -> bool:
        etag = self._etag(key, if_version)
        if etag is None:
            return False
        if self._deletes is None:
            self._deletes = self._deletes_conditionally()
        if self._deletes:
            is_done = self._objects.remove(_name(key), etag)
        else:
            # An unconditional delete could remove an object that another process has just created.
            is_done = self._objects.replace(_name(key), b"", etag) is not None
        if is_done:
            self._etags.pop(key, None)
        return is_done

    def _etag(self, key: str, version: str) -> str | None:
        known = self._etags.get(key)
        if known is None or known[0] != version:
            self._read(key)
            known = self._etags.get(key)
        return known[1] if known is not None and known[0] == version else None

    def _keys(self, prefix: str) -> list[str]:
        # A segment of only dots is encoded, so a prefix that ends with dots is shortened by them.
        found = self._objects.list(_name(prefix.rstrip(".")))
        keys = [unquote(name) for name, size in found.items() if size and not name.startswith("!")]
        return [key for key in keys if key.startswith(prefix)]


def _name(key: str) -> str:
    # Not every S3 takes every character, and some endpoints treat "." and ".." as path steps.
    return "/".join(
        segment.replace(".", "%2E") if segment and not segment.strip(".") else quote(segment, safe="")
        for segment in key.split("/")
    )


def _ignored(url: str, header: str, what: str) -> ConfigException:
    return ConfigException(
        f"store {url}: this endpoint does not honour {header}: it {what}, so two drivers could own one "
        f"connector; use an S3 that supports conditional writes, or a store in PostgreSQL"
    )
