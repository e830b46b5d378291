from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from sinksdk.store import Store, open_store
from tests.integration.fault_proxy import FaultProxy, serving_s3
from tests.memory_store import MemoryStore
from tests.store.backends import Files, Place, Prefixes, Schemas

BUCKET = "stores"


@pytest.fixture(scope="session")
def s3_server() -> Iterator[tuple[str, FaultProxy]]:
    """Moto behind the fault proxy, with a bucket; credentials are where boto3 finds them by itself."""
    with pytest.MonkeyPatch.context() as environment, serving_s3() as (endpoint, proxy):
        environment.setenv("AWS_ACCESS_KEY_ID", "key")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        yield endpoint, proxy


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest) -> Callable[[str], Place]:
    """Where the stores of a backend are; its server is started when it is asked for first."""

    def place(backend: str) -> Place:
        if backend == "postgresql":
            return Schemas(request.getfixturevalue("postgres"))
        if backend == "s3":
            return Prefixes(request.getfixturevalue("s3_server")[0], BUCKET)
        return Files()

    return place


@pytest.fixture
def new_store(places: Callable[[str], Place], tmp_path: Path) -> Iterator[Callable[[str], Store]]:
    """A new, empty store of a backend."""
    opened: list[Store] = []

    def make(backend: str) -> Store:
        store = (
            MemoryStore() if backend == "memory" else open_store(places(backend).url(tmp_path), create=True)
        )
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()
