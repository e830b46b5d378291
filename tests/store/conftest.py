from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest

from sinksdk.store import Store, open_store
from tests.helpers import minio
from tests.helpers.memory_store import MemoryStore
from tests.integration.fault_proxy import FaultProxy, serving_s3
from tests.store.backends import Files, Place, Prefixes, Schemas

BUCKET = "stores"
S3_SERVERS = {"s3": "s3_server", "minio": "minio_server"}
"""Fixtures of the backends that use S3."""


@pytest.fixture(scope="session")
def s3_credentials() -> Iterator[None]:
    # boto3 itself reads the credentials from the environment.
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", minio.KEY_ID)
        environment.setenv("AWS_SECRET_ACCESS_KEY", minio.SECRET)
        environment.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield


@pytest.fixture(scope="session")
def s3_server(s3_credentials: None) -> Iterator[tuple[str, FaultProxy]]:
    with serving_s3() as (endpoint, proxy):
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        yield endpoint, proxy


@pytest.fixture(scope="session")
def minio_server(minio_url: str, s3_credentials: None) -> Iterator[tuple[str, FaultProxy]]:
    minio.make_bucket(minio_url, BUCKET)
    with serving_s3(minio.Forward(minio_url)) as (endpoint, proxy):
        yield endpoint, proxy


@pytest.fixture(scope="session")
def places(request: pytest.FixtureRequest) -> Callable[[str], Place]:
    # The server starts with the first place that a test requests.
    def place(backend: str) -> Place:
        if backend == "postgresql":
            return Schemas(request.getfixturevalue("postgres"))
        if backend in S3_SERVERS:
            return Prefixes(request.getfixturevalue(S3_SERVERS[backend])[0], BUCKET)
        return Files()

    return place


@pytest.fixture
def new_store(places: Callable[[str], Place], tmp_path: Path) -> Iterator[Callable[[str], Store]]:
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
