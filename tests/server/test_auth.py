from __future__ import annotations

import base64
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from sinksdk import ConfigException
from sinksdk.server import middleware
from sinksdk.server.app import create_app
from sinksdk.server.credentials import Credentials
from sinksdk.settings.addresses import is_loopback_host
from tests.helpers.memory_store import MemoryStore


def basic(text: str) -> str:
    return f"Basic {base64.b64encode(text.encode()).decode()}"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    file = tmp_path / "credentials"
    file.write_text("# who may ask\n\na-token\nanna:pässword\n", encoding="utf-8")
    return TestClient(create_app(MemoryStore(), Credentials.read(file)))


def test_credentials_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    # Some editors on Windows write a byte order mark.
    file = tmp_path / "credentials"
    file.write_text("a-token\n", encoding="utf-8-sig")
    assert Credentials.read(file).client("Bearer a-token") is not None


@pytest.mark.parametrize("header", ["Bearer a-token", "bearer a-token", basic("anna:pässword")])
def test_valid_credentials_are_accepted(client: TestClient, header: str) -> None:
    assert client.get("/connectors", headers={"Authorization": header}).json() == []


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer a-toke", basic("a-token"),
     basic("anna:"), basic("anna:password"), "Basic !!!", "Basic " + base64.b64encode(b"\xff").decode(), "Digest x",
     "Basic \xe9", "Bearer \xe9"],
)  # fmt: skip
def test_requests_without_valid_credentials_get_401_in_connects_format(
    client: TestClient, header: str
) -> None:
    for path in ("/connectors", "/health", "/openapi.json", "/nothing"):
        response = client.get(path, headers={"Authorization": header.encode("latin-1")} if header else {})
        assert (response.status_code, response.json()["error_code"]) == (401, 401)
        assert response.headers["WWW-Authenticate"].startswith("Basic")


@pytest.mark.parametrize("content", ["", "# nobody\n"])
def test_an_empty_credentials_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "credentials"
    file.write_text(content)

    with pytest.raises(ConfigException, match="is empty: add a token"):
        Credentials.read(file)
    with pytest.raises(ConfigException, match=r"cannot read the credentials file .*: FileNotFoundError"):
        Credentials.read(tmp_path / "absent")


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.0.0.2", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),  # noqa: S104 - nobody listens there
     ("::", False),
     ("192.168.0.1", False), ("example.org", False)],
)  # fmt: skip
def test_without_credentials_only_loopback_addresses_are_allowed(host: str, *, here: bool) -> None:
    assert is_loopback_host(host) == here


@pytest.mark.parametrize("path", ["/live", "/ready"])
def test_probes_need_no_credentials(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 200
    assert client.head(path).status_code == 200
    assert client.post(path).status_code == 401


ROLES = "anna:admin-pw\n[metrics]\nprometheus:scrape-pw\n[read]\na-read-token\n[write]\na-write-token\n"


@pytest.fixture
def with_roles(tmp_path: Path) -> TestClient:
    file = tmp_path / "credentials"
    file.write_text(ROLES)
    file.chmod(0o600)
    return TestClient(create_app(MemoryStore(), Credentials.read(file)))


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        (basic("prometheus:scrape-pw"), {"metrics"}),
        ("Bearer a-read-token", {"metrics", "read"}),
        (basic("token:a-read-token"), {"metrics", "read"}),
        ("Bearer a-write-token", {"metrics", "read", "write"}),
        (basic("anna:admin-pw"), {"metrics", "read", "write"}),
    ],
)
def test_role_allows_its_requests_and_no_others(
    with_roles: TestClient, header: str, allowed: set[str]
) -> None:
    # Prometheus's password must not allow creating connectors, which run code.
    requests = {
        "metrics": [("GET", "/metrics"), ("GET", "/health"), ("HEAD", "/metrics")],
        "read": [("GET", "/connectors"), ("GET", "/connectors/a/config"), ("GET", "/ui"), ("GET", "/openapi.json")],
        "write": [
            ("POST", "/connectors"), ("DELETE", "/connectors/a"), ("PUT", "/connectors/a/stop"),
            ("PATCH", "/connectors/a/offsets"), ("PUT", "/admin/loggers/root"),
            ("PUT", "/connector-plugins/s3-archiver/config/validate"),
        ],
    }  # fmt: skip
    for role, all_of_it in requests.items():
        for method, path in all_of_it:
            body = {"json": {}} if method in ("POST", "PUT", "PATCH") else {}
            code = with_roles.request(method, path, headers={"Authorization": header}, **body).status_code
            assert (code != 403) == (role in allowed), f"{method} {path}: {code}"


def test_403_names_the_role_and_the_needed_one(with_roles: TestClient) -> None:
    refused = with_roles.delete("/connectors/a", headers={"Authorization": "Bearer a-read-token"}).json()
    assert refused["message"].startswith(
        "token of line 5 has the role read, but DELETE /connectors/a needs write"
    )


def test_unknown_role_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("[reed]\na-token\n")
    with pytest.raises(ConfigException, match=r"line 1: unknown role \[reed\]: use \[metrics\]"):
        Credentials.read(file)


def test_a_credentials_file_readable_by_others_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "credentials"
    file.write_text("a-token\n")
    file.chmod(0o600)
    Credentials.read(file)
    assert not caplog.records
    file.chmod(0o644)
    Credentials.read(file)
    assert "chmod 600" in caplog.text
    assert "a-token" not in caplog.text


def test_wrong_credentials_are_delayed_and_valid_ones_are_not(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    monkeypatch.setattr(middleware.asyncio, "sleep", sleep)
    for number in range(12):
        assert client.get("/connectors", headers={"Authorization": f"Bearer {number}"}).status_code == 401
    assert slept == [0.25, 0.5, 1.0, 2.0, 4.0, 4.0, 4.0]
    slept.clear()
    assert client.get("/connectors", headers={"Authorization": "Bearer a-token"}).status_code == 200
    assert client.get("/connectors").status_code == 401  # a browser's first request has no credentials
    assert slept == []
    assert caplog.text.count("wrong credentials") == 1


def test_changes_are_audited_with_user_address_and_status(
    with_roles: TestClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sinksdk.server.audit")
    for header in (basic("anna:admin-pw"), "Bearer a-read-token"):
        with_roles.delete("/connectors/a%0Ab", headers={"Authorization": header})
    with_roles.get("/connectors", headers={"Authorization": basic("anna:admin-pw")})
    assert [record.getMessage() for record in caplog.records] == [
        r"DELETE /connectors/a\nb by anna from testclient: 404",
        r"DELETE /connectors/a\nb by token of line 5 from testclient: 403",
    ]
