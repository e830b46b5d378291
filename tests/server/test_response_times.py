"""Probes and scrapes get a response within two seconds, even if the store hangs."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from sinksdk.control.herder import Herder
from sinksdk.server.admin import PATIENCE, BoundedRequest
from sinksdk.server.app import create_app, create_waiting_app
from sinksdk.server.credentials import Credentials, Login
from sinksdk.store import Store
from sinksdk.store.base import Stored
from tests.helpers.memory_store import MemoryStore

pytestmark = pytest.mark.slow

SLOW = 3.0
"""Seconds that a response may take on a busy machine; waiting for the store would take 30."""


class Hanging(MemoryStore):
    """A store whose requests wait until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.responds = threading.Event()
        self.responds.set()
        self.asked = 0

    def snapshot(self, prefix: str) -> Store:
        self._wait()
        return super().snapshot(prefix)

    def _keys(self, prefix: str) -> list[str]:
        self._wait()
        return super()._keys(prefix)

    def _read(self, key: str) -> Stored | None:
        self._wait()
        return super()._read(key)

    def _wait(self) -> None:
        self.asked += 1
        assert self.responds.wait(30)


@pytest.fixture
def store() -> Iterator[Hanging]:
    made = Hanging()
    Herder(made).create("archive", {"name": "archive"})
    yield made
    made.responds.set()


def test_a_hanging_store_gives_503_within_2_s(client: TestClient, store: Hanging) -> None:
    assert PATIENCE < 2.0
    assert client.get("/health").status_code == client.get("/ready").status_code == 200
    store.responds.clear()
    others = [threading.Thread(target=client.get, args=("/connectors",), daemon=True) for _ in range(50)]
    for other in others:
        other.start()
    for path, code in [("/health", 503), ("/ready", 503), ("/metrics", 503), ("/live", 200)]:
        began = time.monotonic()
        response = client.get(path)
        assert (path, response.status_code) == (path, code)
        assert time.monotonic() - began < PATIENCE + SLOW
    assert "has not responded for" in client.get("/health").json()["message"]
    assert client.get("/ready").json() == {"status": "unhealthy", "message": "The store does not respond."}

    store.responds.set()
    for other in others:
        other.join(30)
    assert client.get("/health").status_code == client.get("/metrics").status_code == 200


def test_a_hanging_store_receives_one_request_for_many_probes(client: TestClient, store: Hanging) -> None:
    store.responds.clear()
    before = store.asked
    for _ in range(2):
        client.get("/health")
    assert store.asked == before + 1


def test_a_late_failure_of_a_request_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    # Regression: each probe of an unreachable store logged "Future exception was never retrieved".
    fails = threading.Event()

    def ask() -> None:
        fails.wait(30)
        raise ConnectionError

    async def probe() -> None:
        latest = BoundedRequest(ask, patience=0.05)
        assert await latest.get() is None
        fails.set()
        for _ in range(1_000):
            await asyncio.sleep(0.01)
            if latest.last is not None and latest.last[0].done():
                break
        assert latest.last is not None
        await asyncio.sleep(0.1)  # time for the event loop to see the exception

    asyncio.run(probe())
    gc.collect()
    assert not caplog.records


def test_a_slow_scrape_returns_the_previous_one(
    client: TestClient, store: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sinksdk.server import admin  # noqa: PLC0415 - only to slow it down

    is_slow = threading.Event()
    quick = client.get("/metrics").text

    def slow(*given: object) -> object:
        is_slow.wait(2.5)
        return b"slow 1\n", "text/plain"

    monkeypatch.setattr(admin, "exposition", slow)
    with TestClient(create_app(store)) as other:
        assert other.get("/metrics").status_code == 503
        time.sleep(1.2)
        assert other.get("/metrics").text == "slow 1\n"
    assert "sinksdk_connector_readable" in quick


@pytest.mark.parametrize("path", ["/", "/health", "/connectors", "/connectors/archive", "/metrics", "/ui/"])
def test_head_returns_the_headers_of_get_without_a_body(client: TestClient, path: str) -> None:
    asked, got = client.head(path), client.get(path)

    assert (asked.status_code, asked.content) == (got.status_code, b"") == (200, b"")
    assert asked.headers["Content-Type"] == got.headers["Content-Type"]


def test_head_is_allowed_where_get_is(client: TestClient) -> None:
    assert "HEAD" in client.delete("/health").headers["Allow"]
    assert client.head("/nothing").status_code == 404


def test_a_server_that_waits_for_its_store_is_alive_and_not_ready() -> None:
    app = create_waiting_app(lambda: "It waits for x.", Credentials(tokens=[Login("t")]))
    client = TestClient(app, raise_server_exceptions=False)
    anna = {"Authorization": "Bearer t"}

    assert client.get("/live").status_code == 200
    assert (client.get("/ready").status_code, "waits for x" in client.get("/ready").text) == (503, False)
    assert client.get("/connectors").status_code == 401
    assert client.get("/health", headers=anna).json()["message"] == "It waits for x."
    for response in (
        client.get("/connectors", headers=anna),
        client.post("/connectors", headers=anna, json={}),
    ):
        assert (response.status_code, response.json()["message"]) == (503, "It waits for x.")
    assert client.get("/ui/", headers=anna).status_code == 200
