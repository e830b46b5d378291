"""Finds out whether an endpoint honours the conditions that compare-and-set is made of.

Some that speak S3 answer 501 to a conditional request, some ignore the condition and write. The second
kind would let two drivers own one connector, so nobody's word is taken for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from sinksdk.errors import ConfigException
from sinksdk.store.base import StoreRefused
from sinksdk.store.s3_objects import Objects

PREFIX: Final = "!probe/"
"""What names of probes begin with; no key of the store does, encoded as it is."""

_WRONG_ETAG: Final = f'"{0:032x}"'
_OTHERWISE: Final = "use an S3 that has conditional writes, or a store in PostgreSQL"

Ask = Callable[[Callable[[], Any], str], Any]
"""Makes a request again until it is answered."""


def check_conditional_writes(objects: Objects, ask: Ask, url: str) -> None:
    """Try every condition of PutObject on an object of our own.

    Raises:
        ConfigException: the endpoint does not honour one of them.
        StoreRefused: it refuses for another reason.
    """
    name = f"{PREFIX}{uuid.uuid4().hex}"
    try:
        _check(objects, ask, name, url)
    finally:
        _remove(objects, ask, name)


def deletes_conditionally(objects: Objects, ask: Ask) -> bool:
    """Whether the endpoint honours the condition of DeleteObject; some honour those of PutObject only."""
    name = f"{PREFIX}{uuid.uuid4().hex}"
    ask(lambda: objects.create(name, b"{}"), "probing")
    try:
        return not ask(lambda: objects.remove(name, _WRONG_ETAG), "probing")
    except StoreRefused:
        return False
    finally:
        _remove(objects, ask, name)


def _check(objects: Objects, ask: Ask, name: str, url: str) -> None:
    # A condition that failed where it should hold may be our own doing: the answer to an earlier attempt
    # was lost. What stands there then tells.
    first, second = b'{"probe": 1}', b'{"probe": 2}'
    ask(lambda: objects.create(name, first), "probing")
    found = ask(lambda: objects.read(name), "probing")
    if found is None:
        raise _ignored(url, "If-None-Match", "did not create an object that was not there")
    if ask(lambda: objects.create(name, second), "probing"):
        raise _ignored(url, "If-None-Match", "wrote over an object that was to be created")
    if ask(lambda: objects.replace(name, second, _WRONG_ETAG), "probing"):
        raise _ignored(url, "If-Match", "wrote over an object that had another ETag")
    if not ask(lambda: objects.replace(name, second, found.etag), "probing"):
        now = ask(lambda: objects.read(name), "probing")
        if now is None or now.body != second:
            raise _ignored(url, "If-Match", "did not know an ETag of its own again")


def _ignored(url: str, header: str, what: str) -> ConfigException:
    return ConfigException(
        f"store {url}: this endpoint does not honour {header}: it {what}. Without that, two drivers could "
        f"own one connector; {_OTHERWISE}"
    )


def _remove(objects: Objects, ask: Ask, name: str) -> None:
    ask(lambda: objects.remove(name, None), "probing")
