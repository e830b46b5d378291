"""``/ui``: what is served, and how it is kept from running or asking anything else."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from fastapi.testclient import TestClient

from sinksdk.server.app import create_app
from sinksdk.server.middleware import Credentials, Login
from tests.helpers.memory_store import MemoryStore
from tests.server.test_auth import basic

FILES = sorted(file.name for file in (files("sinksdk.server") / "ui").iterdir())


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(MemoryStore()))


def test_both_addresses_work(client: TestClient) -> None:
    """``/ui`` leads to ``/ui/`` by a relative address: below a proxy's path it does so, too."""
    answer = client.get("/ui", follow_redirects=False)
    assert (answer.status_code, answer.headers["Location"]) == (307, "ui/")
    assert client.get("/ui").text == client.get("/ui/").text
    assert client.get("/ui/").headers["Content-Type"] == "text/html; charset=utf-8"


def test_the_root_stays_connects(client: TestClient) -> None:
    """Clients of Connect begin there."""
    assert client.get("/").json()["kafka_cluster_id"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_is_served_guarded(client: TestClient, name: str) -> None:
    """Nothing but this server's own files may run, and nobody else may be asked."""
    answer = client.get(f"/ui/{name}")
    policy = answer.headers["Content-Security-Policy"]

    assert answer.status_code == 200
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert set(re.findall(r"'\w+'|https?:", policy)) == {"'none'", "'self'"}
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_another_host(client: TestClient, name: str) -> None:
    """All addresses are relative; a namespace of XML is a name and no address."""
    text = client.get(f"/ui/{name}").text.replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?:|//\w+\.|@import", text) == []


def test_there_is_no_way_out_of_the_folder(client: TestClient) -> None:
    """Only files that were there at the start are served."""
    for path in ("absent.js", "..%2Fapp.py", "%2Fetc%2Fpasswd", "index"):
        answer = client.get(f"/ui/{path}")
        assert (answer.status_code, answer.json()["error_code"]) == (404, 404)


@pytest.mark.parametrize("header", [basic("anna:secret"), basic("token:a-token"), "Bearer a-token"])
def test_a_browser_can_show_credentials(header: str) -> None:
    """Asked by a 401, it can send a name and a password: a token is let in as the password of ``token``."""
    credentials = Credentials(tokens=[Login("a-token")], users=[Login("anna:secret")])
    client = TestClient(create_app(MemoryStore(), credentials))

    refused = client.get("/ui/")
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="sinksdk"')
    for path in ("/ui/", "/ui/main.js", "/progress"):
        assert client.get(path, headers={"Authorization": header}).status_code == 200


@pytest.mark.parametrize("pair", ["token:", "token:secret", "anna:a-token", "a-token:token"])
def test_a_token_is_nobody_elses_password(pair: str) -> None:
    """Nor is a user's password a token."""
    client = TestClient(
        create_app(MemoryStore(), Credentials(tokens=[Login("a-token")], users=[Login("anna:secret")]))
    )
    assert client.get("/ui/", headers={"Authorization": basic(pair)}).status_code == 401
