"""A store on S3: one object per key, written by conditional PutObject only.

A value's version is its nonce, which is in its body; the condition of a request needs the object's
ETag. The ETag of a version is remembered from responses, or read again: the nonce in the body shows whether
it is still that version. Bodies differ in their nonces, so their ETags never repeat either.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import quote, unquote

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.store.addresses import S3Address
from sinksdk.store.base import Lost, Store, Stored, StoreRefused, outage_of
from sinksdk.store.s3_objects import MOST_CONNECTIONS, Objects

T = TypeVar("T")

_MARK: Final = "!store"
"""Name of the object that marks a store; no encoded key is equal to it."""

_PROBES: Final = "!probe/"  # prefix of probe objects; no encoded key begins with it
_WRONG_ETAG: Final = f'"{0:032x}"'
_OPENING: Final = 5.0  # seconds: the user who starts a driver waits for the message


class S3Store(Store):
    """Objects below a prefix; ``create`` makes it a store, if the endpoint honours conditional writes.

    Raises:
        ConfigException: the URL is none of a bucket that this process may write to, there is no store, or
            the endpoint does not honour conditional writes.
        StoreUnavailable: no response.
    """

    closing_poll = 5.0  # a check is two requests, which cost money
    most_entries = 256  # a request costs more than its bytes
    most_at_once = MOST_CONNECTIONS  # a request mostly waits

    def __init__(self, url: str, *, create: bool = False, patience: float = 30.0, pause: float = 0.1) -> None:
        super().__init__(patience=min(patience, _OPENING) if create else patience, pause=pause)
        self._address = S3Address.parse(url)
        self._outage = outage_of(self.url)
        self._objects = Objects(self._address)
        self._etags: dict[str, tuple[str, str]] = {}  # last seen version and ETag of each key
        self._deletes: bool | None = None  # whether the endpoint deletes conditionally; found out when needed
        try:
            self._open(create=create)
        except StoreRefused as error:
            raise ConfigException(f"store {self.url} cannot be opened: {error}") from error
        self._patience = patience

    @property
    def url(self) -> str:
        """The URL, secrets masked."""
        return str(self._address)

    def _open(self, *, create: bool) -> None:
        if create:
            self._check_conditional_writes()
            body = json.dumps({"what": "a store of sinksdk", "format": 1}).encode()
            self._ask(lambda: self._objects.create(_MARK, body), "creating it")
        elif self._ask(lambda: self._objects.read(_MARK), "opening it") is None:
            raise ConfigException(
                f"store {self.url} is no store of sinksdk; check bucket and prefix. A driver that is given "
                f"this URL makes it one"
            )

    def _probe(self, request: Callable[[], T]) -> T:
        return self._ask(request, "probing")

    def _check_conditional_writes(self) -> None:
        """Test every condition of PutObject, on a probe object.

        Some endpoints respond with 501 to a conditional request, others ignore the condition and write: then
        two drivers could own one connector.
        """
        objects, first, second = self._objects, b'{"probe": 1}', b'{"probe": 2}'
        name = f"{_PROBES}{uuid.uuid4().hex}"
        try:
            # A condition that fails unexpectedly may be due to our own earlier attempt whose response was
            # lost: compare the object.
            self._probe(lambda: objects.create(name, first))
            found = self._probe(lambda: objects.read(name))
            if found is None:
                raise _ignored(self.url, "If-None-Match", "did not create an object that was not there")
            if self._probe(lambda: objects.create(name, second)):
                raise _ignored(self.url, "If-None-Match", "wrote over an object that was to be created")
            if self._probe(lambda: objects.replace(name, second, _WRONG_ETAG)):
                raise _ignored(self.url, "If-Match", "wrote over an object that had another ETag")
            if not self._probe(lambda: objects.replace(name, second, found.etag)):
                now = self._probe(lambda: objects.read(name))
                if now is None or now.body != second:
                    raise _ignored(self.url, "If-Match", "did not know an ETag of its own again")
        finally:
            self._probe(lambda: objects.remove(name, None))

    def _deletes_conditionally(self) -> bool:
        """Whether the endpoint honours the condition of DeleteObject; some honour those of PutObject only."""
        name = f"{_PROBES}{uuid.uuid4().hex}"
        self._probe(lambda: self._objects.create(name, b"{}"))
        try:
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
            raise ConnectException(
                f"store {self.url}: the object under {key} was not written by sinksdk; remove it, or "
                f"restore the store from a backup"
            ) from error
        self._etags[key] = stored.version, found.etag
        return stored

    def _version(self, key: str) -> str | None:
        """By the ETag, if it is known; the version itself is in the body."""
        known = self._etags.get(key)
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
        """An empty object means a deleted key; see :meth:`_remove`."""
        if self._deletes:
            return None
        found = self._objects.read(_name(key))
        if found is None:
            raise Lost(f"{key} was there and is gone")
        return None if found.body else self._objects.replace(_name(key), body, found.etag)

    def _remove(self, key: str, if_version: str) -> bool:
        """Delete conditionally; if the endpoint cannot do that, conditionally replace it by an empty object.

        An unconditional delete afterwards could remove an object that another process has created meanwhile.
        """
        etag = self._etag(key, if_version)
        if etag is None:
            return False
        if self._deletes is None:
            self._deletes = self._deletes_conditionally()
        if self._deletes:
            is_done = self._objects.remove(_name(key), etag)
        else:
            is_done = self._objects.replace(_name(key), b"", etag) is not None
        if is_done:
            self._etags.pop(key, None)
        return is_done

    def _etag(self, key: str, version: str) -> str | None:
        """The ETag of a key in this version; None if its version has changed."""
        known = self._etags.get(key)
        if known is None or known[0] != version:
            self._read(key)
            known = self._etags.get(key)
        return known[1] if known is not None and known[0] == version else None

    def _keys(self, prefix: str) -> list[str]:
        # A segment of dots only is encoded, so a prefix that ends with dots need not begin its keys' names.
        found = self._objects.list(_name(prefix.rstrip(".")))
        keys = [unquote(name) for name, size in found.items() if size and not name.startswith("!")]
        return [key for key in keys if key.startswith(prefix)]


def _name(key: str) -> str:
    """A key as an object's name; encoded as in a URL, since not every S3 takes every character.

    Segments of dots only are encoded: some endpoints treat "." and ".." as path steps.
    """
    return "/".join(
        segment.replace(".", "%2E") if segment and not segment.strip(".") else quote(segment, safe="")
        for segment in key.split("/")
    )


def _ignored(url: str, header: str, what: str) -> ConfigException:
    return ConfigException(
        f"store {url}: this endpoint does not honour {header}: it {what}. Without that, two drivers could "
        f"own one connector; use an S3 that has conditional writes, or a store in PostgreSQL"
    )
