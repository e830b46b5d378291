"""A key-value store with compare-and-set, whose writes have a known outcome."""

from __future__ import annotations

import functools
import json
import logging
import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from sinksdk.errors import ConnectException
from sinksdk.support.delays import STORE, Delays
from sinksdk.support.logs import Outage

# Older versions refuse values of a newer format, and keep fields that they do not know.
FORMAT: Final = 1

NEWEST_FORMAT: Final = 4

_TRIES: Final = 3
_LOGGED_AFTER: Final = 1.0  # seconds without a response before it is logged
_ENCODER: Final = json.JSONEncoder(sort_keys=True)
_OWN_FIELDS: Final = frozenset({"format", "nonce"})

T = TypeVar("T")
V = TypeVar("V")

log = logging.getLogger(__name__)


class Conflict(ConnectException):
    """Another process has written the key meanwhile; this write had no effect."""


class StoreUnavailable(ConnectException):
    """The store did not respond within the time-out; a write may have taken effect."""

    is_logged = True  # the store logs this error itself, once per outage


class StoreRefused(ConnectException):
    """The store refused a request for good, such as a full disk; nothing was written."""


class StoreUnreadable(ConnectException):
    """A value is damaged, missing or from a newer sinksdk; a restart does not help."""


class Lost(Exception):
    """A backend got no response: the request may have taken effect, and can be repeated."""


class Versioned(NamedTuple):
    value: dict[str, Any]
    version: str


class Stored(NamedTuple):
    body: str
    version: str


# Shared by all stores of this process with one URL: an outage is logged once.
@functools.lru_cache(maxsize=64)
def outage_of(url: str) -> Outage:
    return Outage(log, f"store {url}", after=_LOGGED_AFTER)


class Store(ABC):
    """Compare-and-set over keys. Backends implement the primitives and raise :class:`Lost`.

    Every request may raise StoreUnavailable or StoreRefused.

    Args:
        patience: seconds for which a request without a response is retried.
        pause: seconds before the first retry; later ones wait longer.
    """

    closing_poll = 0.5  # seconds between a task's checks for a close request (closing.poll.ms)
    most_entries = 32  # commits in a task's record; more are moved to segments
    most_at_once = 1  # concurrent requests
    delays: ClassVar[Delays] = STORE

    def __init__(self, *, patience: float = STORE.total, pause: float = STORE.first) -> None:
        self._patience = patience
        self._pause = pause
        self._outage = Outage(log, lambda: f"store {self.url}", after=_LOGGED_AFTER)
        # Backends that can be opened several times replace this outage by the result of outage_of.

    @property
    @abstractmethod
    def url(self) -> str: ...

    def get(self, key: str) -> Versioned | None:
        stored = self._request(lambda: self._read(key), f"reading {key}")
        if stored is None:
            return None
        try:
            value: dict[str, Any] = json.loads(stored.body)
            if value.pop("format", None) not in range(FORMAT, NEWEST_FORMAT + 1):
                raise StoreUnreadable(
                    f"store {self.url}: {key} has a format that this version of sinksdk does not know; "
                    f"upgrade sinksdk"
                )
            del value["nonce"]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise StoreUnreadable(
                f"store {self.url}: {key} is damaged ({type(error).__name__}); restore the store from a "
                f"backup"
            ) from error
        return Versioned(value, stored.version)

    def version(self, key: str) -> str | None:
        return self._request(lambda: self._version(key), f"reading the version of {key}")

    def recent_version(self, key: str) -> str | None:
        """Return a version that may be outdated by a moment."""
        return self.version(key)

    def put(
        self, key: str, value: Mapping[str, Any], if_version: str | None, *, version: int = FORMAT
    ) -> str:
        """Write a value if the key still has this version (None: no value); return the new one.

        Raises:
            Conflict: also if another process wrote while the outcome of our own write was unknown.
        """
        if own := _OWN_FIELDS & value.keys():
            raise ValueError(f"{key}: a value must not have fields called {', '.join(sorted(own))}")
        # The nonce is the version: it never repeats, even if a key is created again, and shows whether an
        # attempt without a response took effect.
        nonce = uuid.uuid4().hex
        body = _ENCODER.encode({"format": version, "nonce": nonce, **value})
        for _ in range(_TRIES):
            if self._request(lambda: self._write(key, Stored(body, nonce), if_version), f"writing {key}"):
                return nonce
            # The write failed because of another process, or of an earlier attempt whose response was lost.
            stored = self._request(lambda: self._read(key), f"reading {key}")
            if stored is not None and stored.version == nonce:
                return nonce
            if stored is None or stored.version != if_version:
                break
            # The object was copied in place: it has the same version, but another ETag.
        raise Conflict(f"store {self.url}: {key} was written by another process")

    def delete(self, key: str, if_version: str) -> None:
        """Remove a key if it still has this version; a missing key is no error."""
        if self._request(lambda: self._remove(key, if_version), f"deleting {key}"):
            return
        if self._request(lambda: self._read(key), f"reading {key}") is not None:
            raise Conflict(f"store {self.url}: {key} was written by another process")

    def list(self, prefix: str) -> list[str]:
        return sorted(self._request(lambda: self._keys(prefix), f"listing {prefix}"))

    def snapshot(self, prefix: str) -> Store:  # noqa: ARG002 - for overriding
        """Return a consistent copy of a prefix if one request can read it, otherwise the store itself."""
        return self

    def at_once(self, request: Callable[[V], T], items: Sequence[V]) -> Sequence[T]:
        """Make a request for each item, some concurrently; raise the first exception in the items' order."""
        threads = min(self.most_at_once, len(items))
        if threads <= 1:
            return [request(item) for item in items]
        with ThreadPoolExecutor(threads, "store") as pool:
            return list(pool.map(lambda item: copy_context().run(request, item), items))

    def close(self) -> None:  # noqa: B027 - a hook: most stores hold nothing
        ...

    def _request(self, request: Callable[[], T], what: str) -> T:
        begun, attempt = time.monotonic(), 0
        while True:
            try:
                result = request()
            except Lost as error:
                self._outage.failed(
                    "store %s does not respond, retrying: %s failed %s: %s",
                    self.url,
                    what,
                    "once" if not attempt else f"{attempt + 1} times",
                    error,
                    since=begun,
                )
                pause = replace(self.delays, first=self._pause).after(attempt + 1)
                # The random part keeps tasks that lost the store together from returning together.
                pause += random.uniform(0.0, self._pause)  # noqa: S311 - no secret
                if time.monotonic() + pause - begun > self._patience:
                    raise StoreUnavailable(
                        f"store {self.url}: {what} got no response for {self._patience:g} s: {error}"
                    ) from error
                time.sleep(pause)
                attempt += 1
            else:
                self._outage.worked()
                return result

    @abstractmethod
    def _read(self, key: str) -> Stored | None: ...

    def _version(self, key: str) -> str | None:
        stored = self._read(key)
        return None if stored is None else stored.version

    @abstractmethod
    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool: ...

    @abstractmethod
    def _remove(self, key: str, if_version: str) -> bool: ...

    @abstractmethod
    def _keys(self, prefix: str) -> Sequence[str]: ...
