"""Who is let in."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sinksdk import ConfigException
from sinksdk.server.app import create_app
from sinksdk.server.middleware import Credentials, is_loopback
from tests.memory_store import MemoryStore


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    file = tmp_path / "credentials"
    file.write_text("# who may ask\n\na-token\nanna:pässword\n", encoding="utf-8")
    return TestClient(create_app(MemoryStore(), Credentials.read(file)))


@pytest.mark.parametrize("header", ["Bearer a-token", "bearer a-token", basic("anna:pässword")])
def test_whoever_has_credentials_is_let_in(client: TestClient, header: str) -> None:
    """A token, or a user with a password."""
    assert client.get("/connectors", headers={"Authorization": header}).json() == []


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer a-toke", basic("a-token"),
     basic("anna:"), basic("anna:password"), "Basic !!!", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x",
     "Basic \xe9", "Bearer \xe9"],
)  # fmt: skip
def test_anybody_else_is_not(client: TestClient, header: str) -> None:
    """401 in Connect's form, whatever is asked for; and how to do better."""
    for path in ("/connectors", "/health", "/openapi.json", "/nothing"):
        answer = client.get(path, headers={"Authorization": header.encode("latin-1")} if header else {})
        assert (answer.status_code, answer.json()["error_code"]) == (401, 401)
        assert answer.headers["WWW-Authenticate"].startswith("Basic")


@pytest.mark.parametrize("content", ["", "# nobody\n"])
def test_credentials_that_let_nobody_in_are_refused(tmp_path: Path, content: str) -> None:
    """A server that nobody can use is not what was meant."""
    file = tmp_path / "credentials"
    file.write_text(content)

    with pytest.raises(ConfigException, match="let nobody in"):
        Credentials.read(file)
    with pytest.raises(ConfigException, match="cannot be read: FileNotFoundError"):
        Credentials.read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),  # noqa: S104 - nobody listens there
     ("::", False),
     ("192.168.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_what_only_this_machine_reaches(host: str, *, here: bool) -> None:
    """Without credentials the server listens there only."""
    assert is_loopback(host) == here


@pytest.mark.parametrize("path", ["/live", "/ready"])
def test_probes_of_the_process_need_no_credentials(client: TestClient, path: str) -> None:
    """Who probes has none to give. What they answer is of no use to anybody else."""
    assert client.get(path).status_code == 200
    assert client.head(path).status_code == 200
    assert client.post(path).status_code == 401
