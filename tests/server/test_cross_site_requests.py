"""Pages in a browser must not control a server on the same machine."""

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
def test_localhost_addresses_and_allowed_hosts_are_accepted(client: TestClient, host: str) -> None:
    assert client.get("/connectors", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "allowed", ["Connect.Example.org", "connect.example.org:8083", "connect.example.org."]
)
@pytest.mark.parametrize("host", ["connect.example.org", "CONNECT.example.org.:8083"])
def test_allowed_hosts_ignore_case_port_and_trailing_dot(allowed: str, host: str) -> None:
    with TestClient(create_app(MemoryStore(), hosts=[allowed])) as client:
        assert client.get("/connectors", headers={"Host": host}).status_code == 200
        origin = {"Host": "localhost", "Origin": "https://connect.example.org"}
        assert client.get("/connectors", headers=origin).status_code == 200
        assert client.get("/connectors", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8083", "localhost.evil.example", "127.0.0.1.evil.example", "[", "x y"],
)
def test_another_host_is_refused_with_403(client: TestClient, host: str) -> None:
    # With DNS rebinding, the name of another site resolves to this server.
    for path in ("/connectors", "/health", "/openapi.json"):
        response = client.get(path, headers={"Host": host})
        assert (response.status_code, response.json()["error_code"]) == (403, 403)
    assert "--allowed-host" in response.json()["message"]


@pytest.mark.parametrize(
    ("origin", "code"),
    [("http://localhost:8083", 404), ("https://connect.example.org", 404), ("https://evil.example", 403),
     ("null", 403), ("http://localhost:9999", 403), ("http://[", 403)],
)  # fmt: skip
def test_requests_of_another_sites_page_are_refused_with_403(
    client: TestClient, origin: str, code: int
) -> None:
    # Browsers send a POST without a body without a preflight request, but with the page's Origin.
    headers = {"Host": "localhost:8083", "Origin": origin}

    assert client.post("/connectors/archive/restart", headers=headers).status_code == code


def test_cors_preflight_requests_are_refused(client: TestClient) -> None:
    headers = {"Origin": "https://evil.example", "Access-Control-Request-Method": "DELETE"}
    response = client.options("/connectors/archive", headers=headers)

    assert response.status_code == 403
    assert not [name for name in response.headers if name.lower().startswith("access-control")]


def test_a_server_without_credentials_refuses_cross_site_requests() -> None:
    with serving(MemoryStore()) as address:
        assert httpx.get(f"{address}/connectors").status_code == 200
        rebound = httpx.get(f"{address}/connectors", headers={"Host": "evil.example"})
        assert rebound.status_code == 403
    with serving(MemoryStore(), allowed_hosts=["proxy.example.org"]) as address:
        named = httpx.get(f"{address}/connectors", headers={"Host": "proxy.example.org"})
        assert named.status_code == 200
