"""Pages that a browser shows must not use a server on its machine."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from fastapi.testclient import TestClient

from sinksdk.server.app import create_app
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import serving


@pytest.fixture
def client() -> Iterator[TestClient]:
    with TestClient(create_app(MemoryStore(), hosts=["connect.example.org"])) as made:
        yield made


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8083", "127.0.0.1:8083", "[::1]:8083", "connect.example.org", "10.0.0.7"]
)
def test_it_is_asked_by_its_names(client: TestClient, host: str) -> None:
    """localhost, any address, and names that it was told."""
    assert client.get("/connectors", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "allowed", ["Connect.Example.org", "connect.example.org:8083", "connect.example.org."]
)
@pytest.mark.parametrize("host", ["connect.example.org", "CONNECT.example.org.:8083"])
def test_name_of_the_server_is_one_in_any_spelling(allowed: str, host: str) -> None:
    """Names have no case, and may be told with the port, or with DNS's dot at their end."""
    with TestClient(create_app(MemoryStore(), hosts=[allowed])) as client:
        assert client.get("/connectors", headers={"Host": host}).status_code == 200
        origin = {"Host": "localhost", "Origin": "https://connect.example.org"}
        assert client.get("/connectors", headers=origin).status_code == 200
        assert client.get("/connectors", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8083", "localhost.evil.example", "127.0.0.1.evil.example", "[", "x y"],
)
def test_another_name_is_refused(client: TestClient, host: str) -> None:
    """403: DNS rebinding, a name of somebody else's that leads here. Nothing is told either."""
    for path in ("/connectors", "/health", "/openapi.json"):
        answer = client.get(path, headers={"Host": host})
        assert (answer.status_code, answer.json()["error_code"]) == (403, 403)
    assert "--allowed-host" in answer.json()["message"]


@pytest.mark.parametrize(
    ("origin", "code"),
    [("http://localhost:8083", 404), ("https://connect.example.org", 404), ("https://evil.example", 403),
     ("null", 403), ("http://localhost:9999", 403), ("http://[", 403)],
)  # fmt: skip
def test_what_another_sites_page_sends_is_refused(client: TestClient, origin: str, code: int) -> None:
    """403: a POST without a body needs no check beforehand, but has the page's origin."""
    headers = {"Host": "localhost:8083", "Origin": origin}

    assert client.post("/connectors/archive/restart", headers=headers).status_code == code


def test_no_page_may_read_across_sites(client: TestClient) -> None:
    """There is no CORS: a check beforehand fails."""
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
    answer = client.options("/connectors/archive", headers=headers)

    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_the_server_without_credentials_is_guarded() -> None:
    """As sinksdk server starts it."""
    with serving(MemoryStore()) as address:
        assert httpx.get(f"{address}/connectors").status_code == 200
        rebound = httpx.get(f"{address}/connectors", headers={"Host": "evil.example"})
        assert rebound.status_code == 403
    with serving(MemoryStore(), allowed_hosts=["proxy.example.org"]) as address:
        named = httpx.get(f"{address}/connectors", headers={"Host": "proxy.example.org"})
        assert named.status_code == 200
