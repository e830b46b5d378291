"""A store on S3: one object per key, written by conditional PutObject only.

A value's version is its nonce, which is in its body; the condition of a request needs the object's
ETag. Which ETag a version has is remembered from the answers, or read again: the body tells whether it
is still that version. Bodies differ in their nonces, so their ETags never repeat either.
"""

from __future__ import annotations

import json
from typing import Final
from urllib.parse import quote, unquote

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.store.base import Lost, Store, Stored, StoreRefused, outage_of
from sinksdk.store.s3_address import S3Address
from sinksdk.store.s3_objects import MOST_CONNECTIONS, Found, Objects
from sinksdk.store.s3_probe import check_conditional_writes, deletes_conditionally

_MARK: Final = "!store"
"""Name of the object that says that this is a store; no key is encoded so."""

_OPENING: Final = 5.0  # seconds: whoever starts a driver waits for the message


class S3Store(Store):
    """Objects below a prefix.

    Args:
        url: ``s3://bucket/prefix``, with options as in :class:`~sinksdk.store.s3_address.S3Address`.
        create: make it a store where it is none yet, and try whether the endpoint can be one.
        patience: seconds for which a request without an answer is made again.

    Raises:
        ConfigException: not a URL of a bucket that this process may write to, not a store, or the
            endpoint does not honour conditional writes.
        StoreUnavailable: no answer.
    """

    def __init__(self, url: str, *, create: bool = False, patience: float = 30.0, pause: float = 0.1) -> None:
        super().__init__(patience=min(patience, _OPENING) if create else patience, pause=pause)
        self._address = S3Address.parse(url)
        self._outage = outage_of(self.url)
        self._objects = Objects(self._address)
        self._etags: dict[str, tuple[str, str]] = {}  # the version seen last of each key, and its ETag
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

    @property
    def closing_poll(self) -> float:
        """Every look is two requests that cost money, and a request takes longer."""
        return 5.0

    @property
    def most_entries(self) -> int:
        """A request costs more than its bytes."""
        return 256

    @property
    def most_at_once(self) -> int:
        """A request takes long, and mostly waits."""
        return MOST_CONNECTIONS

    def _open(self, *, create: bool) -> None:
        if create:
            check_conditional_writes(self._objects, self._ask, self.url)
            body = json.dumps({"what": "a store of sinksdk", "format": 1}).encode()
            self._ask(lambda: self._objects.create(_MARK, body), "creating it")
        elif self._ask(lambda: self._objects.read(_MARK), "opening it") is None:
            raise ConfigException(
                f"store {self.url} is no store of sinksdk; check bucket and prefix. A driver that is given "
                f"this URL makes it one"
            )

    def _read(self, key: str) -> Stored | None:
        found = self._objects.read(_name(key))
        if found is None or not found.body:
            self._etags.pop(key, None)
            return None
        stored = self._stored(key, found)
        self._etags[key] = stored.version, found.etag
        return stored

    def _version(self, key: str) -> str | None:
        """By the ETag, where that is known; the version itself stands in the body."""
        known = self._etags.get(key)
        if known is not None and self._objects.etag(_name(key)) == known[1]:
            return known[0]
        return super()._version(key)

    def _stored(self, key: str, found: Found) -> Stored:
        try:
            body = found.body.decode()
            return Stored(body, json.loads(body)["nonce"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConnectException(
                f"store {self.url}: the object under {key} was not written by sinksdk; remove it, or "
                f"restore the store from a backup"
            ) from error

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
        """An empty object stands for none; see :meth:`_remove`."""
        if self._deletes:
            return None
        found = self._objects.read(_name(key))
        if found is None:
            raise Lost(f"{key} was there and is gone")
        return None if found.body else self._objects.replace(_name(key), body, found.etag)

    def _remove(self, key: str, if_version: str) -> bool:
        """Delete on condition, or where the endpoint cannot do that: empty the object on condition.

        To delete it afterwards would be without condition again, and could hit what somebody else has
        created meanwhile.
        """
        etag = self._etag(key, if_version)
        if etag is None:
            return False
        if self._deletes is None:
            self._deletes = deletes_conditionally(self._objects, self._ask)
        if self._deletes:
            is_done = self._objects.remove(_name(key), etag)
        else:
            is_done = self._objects.replace(_name(key), b"", etag) is not None
        if is_done:
            self._etags.pop(key, None)
        return is_done

    def _etag(self, key: str, version: str) -> str | None:
        """The ETag of a key in this version, None where it has another version by now."""
        known = self._etags.get(key)
        if known is None or known[0] != version:
            self._read(key)
            known = self._etags.get(key)
        return known[1] if known is not None and known[0] == version else None

    def _keys(self, prefix: str) -> list[str]:
        # A segment of dots only is encoded, so a prefix that ends with dots need not begin its keys' names.
        found = self._objects.list(_name(prefix.rstrip(".")))
        keys = [unquote(item.name) for item in found if item.size and not item.name.startswith("!")]
        return [key for key in keys if key.startswith(prefix)]


def _name(key: str) -> str:
    """A key as an object's name; encoded as in a URL, since not every S3 takes every character."""
    return "/".join(_segment(segment) for segment in key.split("/"))


def _segment(text: str) -> str:
    """Of dots only: "." and ".." are steps in a path to some."""
    return text.replace(".", "%2E") if text and not text.strip(".") else quote(text, safe="")
