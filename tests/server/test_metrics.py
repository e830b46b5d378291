"""``GET /metrics``."""

from __future__ import annotations

from fastapi.testclient import TestClient

from sinksdk.control.herder import Herder
from sinksdk.server.app import create_app
from sinksdk.server.credentials import Credentials, Login
from sinksdk.store import Store
from tests.helpers.memory_store import MemoryStore
from tests.server.test_rest import Flaky


class WithoutSnapshots(Flaky):
    """A store without snapshots, like one on S3."""

    def snapshot(self, prefix: str) -> Store:
        return self


def test_metrics_are_text_for_prometheus(store: MemoryStore) -> None:
    Herder(store).create("archive", {"name": "archive"})
    response = TestClient(create_app(store)).get("/metrics")

    assert response.status_code == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=")
    assert 'sinksdk_connector_readable{connector="archive"} 1.0\n' in response.text


def test_metrics_of_an_unavailable_store_are_503() -> None:
    # Prometheus then marks the target as down, and keeps no old numbers.
    store = WithoutSnapshots(patience=0.01)
    client = TestClient(create_app(store), raise_server_exceptions=False)
    store.is_down = True

    assert client.get("/metrics").status_code == 503


def test_metrics_need_credentials() -> None:
    client = TestClient(
        create_app(MemoryStore(), Credentials(tokens=[Login("t")], users=[Login("prometheus:p")]))
    )

    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer t"}).status_code == 200
    assert client.get("/metrics", auth=("prometheus", "p")).status_code == 200
