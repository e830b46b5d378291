from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from sinksdk.server.app import create_app
from tests.helpers.memory_store import MemoryStore


@pytest.fixture
def client(store: MemoryStore) -> Iterator[TestClient]:
    with TestClient(create_app(store), raise_server_exceptions=False) as made:
        yield made
