"""The stores that the contract runs against, and a wrapper that loses responses of any of them.

To add a backend, add a name to ``SHARED`` and a fixture for its place to ``conftest.py``.
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
    def url(self, folder: Path) -> str: ...


class Files:
    def url(self, folder: Path) -> str:
        return f"sqlite:///{folder}/store-{uuid.uuid4().hex}.db"


class Schemas:
    def __init__(self, server: PostgresServer) -> None:
        self.server = server

    def url(self, folder: Path) -> str:
        return self.server.url(f"store_{uuid.uuid4().hex}")


class Prefixes:
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

BACKENDS = ("memory", *SHARED)

# MinIO accepts no keys that are folders of other keys, and none of 500 characters; stores need neither.
OF_ANY_KEY = tuple(backend for backend in BACKENDS if "minio" not in getattr(backend, "values", ()))

Primitive = Literal["read", "write", "remove", "keys"]
Fault = Literal["before", "after"] | Callable[[], None] | None


class LossyStore(Store):
    # ``before``: the request never arrived. ``after``: the request took effect, but its response was lost. A
    # function runs where a response is lost, and its result tells whether the request took effect.
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
