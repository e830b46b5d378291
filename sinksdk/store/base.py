"""A key-value store with compare-and-set, whose writes have a known outcome.

Every value is a JSON object; the store adds a format version and a nonce. The nonce is the value's
version: versions never repeat, also over delete and re-create, and equal values never share one. It also
resolves unknown outcomes: when the response to a write is lost, the store repeats the write with the same
nonce; if the condition fails then, it compares the nonce with that of the stored value.
"""

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
from typing import Any, Final, NamedTuple, TypeVar

from sinksdk.errors import ConnectException
from sinksdk.support.delays import STORE
from sinksdk.support.logs import Outage

FORMAT: Final = 1
"""Default version of a value's format (``Value.format``). A sinksdk that knows only lower ones neither reads
nor writes the value. Adding a field does not change it: older versions keep fields that they do not know."""

NEWEST_FORMAT: Final = 4
"""The highest one this sinksdk reads."""

_TRIES: Final = 3
_TOLD_AFTER: Final = 1.0  # seconds without a response before it is logged
_ENCODER: Final = json.JSONEncoder(sort_keys=True)
_OWN_FIELDS: Final = frozenset({"format", "nonce"})

T = TypeVar("T")
V = TypeVar("V")

log = logging.getLogger(__name__)


class Conflict(ConnectException):
    """The condition of a write failed: another process has written since. The write had no effect."""


class StoreUnavailable(ConnectException):
    """The store did not respond until the time-out. A write may have taken effect or not."""

    is_logged = True
    """The store has logged its outage already."""


class StoreRefused(ConnectException):
    """No retry can help: no permission, disk full. Nothing was written."""


class StoreUnreadable(ConnectException):
    """A newer sinksdk wrote a value, or it is damaged or missing. A restart does not help."""


class Lost(Exception):
    """Raised by a backend: no response, the request may have taken effect or not. Retry it."""


class Versioned(NamedTuple):
    """A value and the version to name when replacing it."""

    value: dict[str, Any]
    version: str


class Stored(NamedTuple):
    """A backend's value of a key."""

    body: str
    version: str


@functools.lru_cache(maxsize=64)
def outage_of(url: str) -> Outage:
    """The outage of a store by its URL without secrets, shared in this process."""
    return Outage(log, f"store {url}", after=_TOLD_AFTER)


class Store(ABC):
    """Compare-and-set over keys. Backends implement the four primitives and raise :class:`Lost`.

    Args:
        patience: seconds for which a request without a response is retried.
        pause: seconds before the first of these attempts; later ones wait longer.
    """

    closing_poll = 0.5
    """Default of ``closing.poll.ms`` in seconds: between a task's checks for a close request."""
    most_entries = 32
    """Number of commits in a task's record above which they are moved to segments."""
    most_at_once = 1
    """Number of concurrent requests; 1 where they would wait for each other."""

    def __init__(self, *, patience: float = STORE.total, pause: float = STORE.first) -> None:
        self._patience = patience
        self._pause = pause
        self._outage = Outage(log, lambda: f"store {self.url}", after=_TOLD_AFTER)
        # Backends that can be opened again replace it by that of outage_of.

    @property
    @abstractmethod
    def url(self) -> str:
        """Its URL, as :func:`sinksdk.store.open_store` takes it. Without secrets."""

    def get(self, key: str) -> Versioned | None:
        """The value of a key, None where there is none.

        Raises:
            StoreUnreadable: the value was written by a newer sinksdk, or is damaged.
            StoreUnavailable: no response.
            StoreRefused: no retry can help; every other method raises it too.
        """
        stored = self._ask(lambda: self._read(key), f"reading {key}")
        if stored is None:
            return None
        try:
            value: dict[str, Any] = json.loads(stored.body)
            if value.pop("format", None) not in range(FORMAT, NEWEST_FORMAT + 1):
                raise StoreUnreadable(
                    f"store {self.url}: {key} has a format this version of sinksdk does not know; "
                    f"upgrade it here"
                )
            del value["nonce"]
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise StoreUnreadable(
                f"store {self.url}: {key} is damaged ({type(error).__name__}); restore the store from a "
                f"backup"
            ) from error
        return Versioned(value, stored.version)

    def version(self, key: str) -> str | None:
        """The version of a key's value, None where there is none; the value is not transferred."""
        return self._ask(lambda: self._version(key), f"looking at {key}")

    def recent_version(self, key: str) -> str | None:
        """As :meth:`version`, perhaps of a moment ago: for threads that poll."""
        return self.version(key)

    def put(
        self, key: str, value: Mapping[str, Any], if_version: str | None, *, version: int = FORMAT
    ) -> str:
        """Write a value if the key still has the given version (None: if it has no value).

        Args:
            version: of the value's format (:data:`FORMAT`).

        Returns:
            The new version.

        Raises:
            Conflict: it has another one. Also if the outcome of our own write stays unknown because another
                process has written since.
            StoreUnavailable: no response; the write may have taken effect.
            ValueError: the value has a field ``format`` or ``nonce``.
        """
        if own := _OWN_FIELDS & value.keys():
            message = f"{key}: a value must not have fields called {', '.join(sorted(own))}"
            raise ValueError(message)
        nonce = uuid.uuid4().hex
        body = _ENCODER.encode({"format": version, "nonce": nonce, **value})
        for _ in range(_TRIES):
            if self._ask(lambda: self._write(key, Stored(body, nonce), if_version), f"writing {key}"):
                return nonce
            # Another process was first, or this one: an attempt whose response was lost.
            stored = self._ask(lambda: self._read(key), f"reading {key}")
            if stored is not None and stored.version == nonce:
                return nonce
            if stored is None or stored.version != if_version:
                break
            # The version is the same, its ETag is not: somebody has copied the object in place.
        raise Conflict(f"store {self.url}: {key} was written by somebody else")

    def delete(self, key: str, if_version: str) -> None:
        """Remove a key if it still has the given version; a missing key is no error.

        Raises:
            Conflict: it has another version.
            StoreUnavailable: no response; it may be removed.
        """
        if self._ask(lambda: self._remove(key, if_version), f"deleting {key}"):
            return
        if self._ask(lambda: self._read(key), f"reading {key}") is not None:
            raise Conflict(f"store {self.url}: {key} was written by somebody else")

    def list(self, prefix: str) -> list[str]:
        """All keys that begin with a prefix, sorted. Raises StoreUnavailable."""
        return sorted(self._ask(lambda: self._keys(prefix), f"listing {prefix}"))

    def snapshot(self, prefix: str) -> Store:  # noqa: ARG002 - for overriding
        """A read-only, consistent copy of the values below a prefix, in one request.

        A store that has no such request returns itself. Raises StoreUnavailable.
        """
        return self

    def at_once(self, request: Callable[[V], T], items: Sequence[V]) -> Sequence[T]:
        """Make a request for each item, up to :attr:`most_at_once` concurrently, each in a thread.

        Results are in the items' order. The first exception in that order is raised; other requests may have
        been made.
        """
        threads = min(self.most_at_once, len(items))
        if threads <= 1:
            return [request(item) for item in items]
        with ThreadPoolExecutor(threads, "store") as pool:
            return list(pool.map(lambda item: copy_context().run(request, item), items))

    def close(self) -> None:  # noqa: B027 - a hook: most stores hold nothing
        """Close connections."""

    def _ask(self, request: Callable[[], T], what: str) -> T:
        """Repeat a request until it has a response, with growing pauses, for at most ``patience``."""
        begun, attempt = time.monotonic(), 0
        while True:
            try:
                answer = request()
            except Lost as error:
                self._outage.failed(
                    "store %s does not respond, retrying: %s failed %s: %s",
                    self.url,
                    what,
                    "once" if not attempt else f"{attempt + 1} times",
                    error,
                    since=begun,
                )
                pause = replace(STORE, first=self._pause).after(attempt + 1)
                pause += random.uniform(0.0, self._pause)  # noqa: S311 - no secret
                if time.monotonic() + pause - begun > self._patience:
                    message = f"store {self.url}: {what} got no response for {self._patience:g} s: {error}"
                    raise StoreUnavailable(message) from error
                time.sleep(pause)
                attempt += 1
            else:
                self._outage.worked()
                return answer

    @abstractmethod
    def _read(self, key: str) -> Stored | None:
        """The value of a key."""

    def _version(self, key: str) -> str | None:
        """The version of a key's value; overridden where that needs no read of the whole value."""
        stored = self._read(key)
        return None if stored is None else stored.version

    @abstractmethod
    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        """Write if the version is the given one; False when it is another."""

    @abstractmethod
    def _remove(self, key: str, if_version: str) -> bool:
        """Delete if the version is the given one; False if it is another or the key does not exist."""

    @abstractmethod
    def _keys(self, prefix: str) -> Sequence[str]:
        """Keys that begin with a prefix."""
