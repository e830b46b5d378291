"""The stores the contract is run against, and a wrapper that loses answers of any of them.

Another backend joins by one more name in ``SHARED``, and a fixture for its place in ``conftest.py``.
"""

from __future__ import annotations

import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol

import pytest

from sinksdk.store import Store
from sinksdk.store.base import Lost, Stored
from tests.store.postgres_server import PostgresServer


class Place(Protocol):
    """Where the stores of one kind are, for as long as the tests run."""

    def url(self, folder: Path) -> str:
        """URL of a new store, which is not made yet."""
        ...


class Files:
    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/store-{uuid.uuid4().hex}.db"


class Schemas:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def url(self, folder: Path) -> str:
        return self.server.url(f"store_{uuid.uuid4().hex}")


class Prefixes:
    """S3: a prefix each, in one bucket."""

    def __init__(self, endpoint: str, bucket: str) -> None:
        self.endpoint = endpoint
        self.bucket = bucket

    def url(self, folder: Path) -> str:
        return f"s3://{self.bucket}/{uuid.uuid4().hex}/state?endpoint={self.endpoint}"


SHARED = (
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.slow),
    pytest.param("s3", marks=pytest.mark.slow),
    pytest.param("minio", marks=[pytest.mark.slow, pytest.mark.nightly]),
)
"""Backends that other processes reach by their URL."""

BACKENDS = ("memory", *SHARED)

OF_ANY_KEY = tuple(backend for backend in BACKENDS if "minio" not in getattr(backend, "values", ()))
"""Backends that have keys which MinIO has not, as no store needs them: folders of other keys, 500 characters."""

Primitive = Literal["read", "write", "remove", "keys"]
Fault = Literal["before", "after"] | Callable[[], None] | None


class LossyStore(Store):
    """Another store whose answers get lost as told, per primitive and in order.

    ``before``: the request never arrived. ``after``: it took effect, the answer got lost. A function is
    run where an answer gets lost, and tells by its result whether the request took effect. None: all is
    well; so is everything once the list is used up.
    """

    def __init__(self, inner: Store, *, patience: float = 60.0) -> None:
        super().__init__(patience=patience, pause=0.0)
        self.inner = inner
        self.faults: dict[Primitive, deque[Fault]] = defaultdict(deque)
        self.requests: list[Primitive] = []
        self.is_down = False

    @property
    def url(self) -> str:
        return self.inner.url

    def _lossy(self, primitive: Primitive, request: Callable[[], object]) -> object:
        self.requests.append(primitive)
        if self.is_down:
            raise Lost("down")
        fault = self.faults[primitive].popleft() if self.faults[primitive] else None
        if fault == "before":
            raise Lost("the request never arrived")
        answer = request()
        if fault is not None:
            if callable(fault):
                fault()
            raise Lost("the answer was lost")
        return answer

    def _read(self, key: str) -> Stored | None:
        return self._lossy("read", lambda: self.inner._read(key))

    def _write(self, key: str, stored: Stored, if_version: str | None) -> bool:
        return self._lossy("write", lambda: self.inner._write(key, stored, if_version))

    def _remove(self, key: str, if_version: str) -> bool:
        return self._lossy("remove", lambda: self.inner._remove(key, if_version))

    def _keys(self, prefix: str) -> Sequence[str]:
        return self._lossy("keys", lambda: self.inner._keys(prefix))
