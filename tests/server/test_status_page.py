"""The status page's files and their protection."""

from __future__ import annotations

import re
from importlib.resources import files

import pytest
from fastapi.testclient import TestClient

from sinksdk.server.app import create_app
from sinksdk.server.credentials import Credentials, Login
from tests.helpers.memory_store import MemoryStore
from tests.server.test_auth import basic

FILES = sorted(file.name for file in (files("sinksdk.server") / "ui").iterdir())


@pytest.fixture
def client() -> TestClient:
    return TestClient(create_app(MemoryStore()))


def test_ui_redirects_to_a_relative_address(client: TestClient) -> None:
    # A relative address also works below a proxy's path.
    response = client.get("/ui", follow_redirects=False)
    assert (response.status_code, response.headers["Location"]) == (307, "ui/")
    assert client.get("/ui").text == client.get("/ui/").text
    assert client.get("/ui/").headers["Content-Type"] == "text/html; charset=utf-8"


def test_the_root_path_describes_the_server_as_in_kafka_connect(client: TestClient) -> None:
    assert client.get("/").json()["kafka_cluster_id"]


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_a_content_security_policy(client: TestClient, name: str) -> None:
    response = client.get(f"/ui/{name}")
    policy = response.headers["Content-Security-Policy"]

    assert response.status_code == 200
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
    assert set(re.findall(r"'\w+'|https?:", policy)) == {"'none'", "'self'"}
    assert response.headers["X-Content-Type-Options"] == "nosniff"


@pytest.mark.parametrize("name", FILES)
def test_no_file_names_another_host(client: TestClient, name: str) -> None:
    text = client.get(f"/ui/{name}").text.replace("http://www.w3.org/2000/svg", "")
    assert re.findall(r"https?:|//\w+\.|@import", text) == []


def test_only_files_of_the_page_are_served(client: TestClient) -> None:
    for path in ("absent.js", "..%2Fapp.py", "%2Fetc%2Fpasswd", "index"):
        response = client.get(f"/ui/{path}")
        assert (response.status_code, response.json()["error_code"]) == (404, 404)


@pytest.mark.parametrize("header", [basic("anna:secret"), basic("token:a-token"), "Bearer a-token"])
def test_a_token_is_valid_as_the_password_of_token(header: str) -> None:
    credentials = Credentials(tokens=[Login("a-token")], users=[Login("anna:secret")])
    client = TestClient(create_app(MemoryStore(), credentials))

    refused = client.get("/ui/")
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, 'Basic realm="sinksdk"')
    for path in ("/ui/", "/ui/main.js", "/progress"):
        assert client.get(path, headers={"Authorization": header}).status_code == 200


@pytest.mark.parametrize("pair", ["token:", "token:secret", "anna:a-token", "a-token:token"])
def test_a_token_is_not_the_password_of_other_users(pair: str) -> None:
    client = TestClient(
        create_app(MemoryStore(), Credentials(tokens=[Login("a-token")], users=[Login("anna:secret")]))
    )
    assert client.get("/ui/", headers={"Authorization": basic(pair)}).status_code == 401
