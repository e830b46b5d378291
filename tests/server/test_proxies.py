"""The address of a client is that of its connection, or the one that a trusted proxy forwards."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
import pytest

from sinksdk import ConfigException
from sinksdk.server.middleware import BODY_BYTES
from sinksdk.server.rest import RestServer
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import serving

PASSWORD = ("anna", "a-password")


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    file = tmp_path / "credentials"
    file.write_text(":".join(PASSWORD))
    file.chmod(0o600)
    return file


def audited(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "sinksdk.server.audit"]


def test_x_forwarded_for_of_an_untrusted_client_is_ignored(
    credentials: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Such a client would choose its address in the audit log, and guess passwords without a delay.
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn itself reads this variable
    caplog.set_level("INFO", "sinksdk.server.audit")
    with serving(MemoryStore(), credentials=credentials) as url, httpx.Client(base_url=url) as client:
        forged = {"X-Forwarded-For": "192.0.2.77"}
        assert client.delete("/connectors/a", headers=forged, auth=PASSWORD).status_code == 404
        began = time.monotonic()
        for number in range(8):
            forged = {"X-Forwarded-For": f"192.0.2.{number}"}
            assert client.get("/connectors", headers=forged, auth=("anna", "wrong")).status_code == 401
        assert time.monotonic() - began > 1.5  # 0.25 + 0.5 + 1 s
    deletion, wrong = audited(caplog)
    assert deletion == "DELETE /connectors/a by anna from 127.0.0.1: 404"
    assert wrong.startswith("authentication of 127.0.0.1 failed: wrong credentials")


@pytest.mark.parametrize("trusted", ["127.0.0.1", "127.0.0.0/8"])
def test_x_forwarded_for_of_a_trusted_proxy_names_the_client(
    credentials: Path, caplog: pytest.LogCaptureFixture, trusted: str
) -> None:
    # The last address that is no proxy's is the client's: the client may have sent the addresses before it.
    caplog.set_level("INFO", "sinksdk.server.audit")
    with serving(MemoryStore(), credentials=credentials, trusted_proxies=[trusted]) as url:
        headers = {"X-Forwarded-For": "198.51.100.1, 192.0.2.77"}
        assert httpx.delete(f"{url}/connectors/a", headers=headers, auth=PASSWORD).status_code == 404
    assert audited(caplog) == ["DELETE /connectors/a by anna from 192.0.2.77: 404"]


@pytest.mark.parametrize("forwarded", ["2001:db8::{}", "[2001:db8::{}]:99", "192.0.2.77:{}", "_hidden{}"])
def test_failed_authentications_are_counted_by_network(
    credentials: Path, caplog: pytest.LogCaptureFixture, forwarded: str
) -> None:
    # All addresses of a /64 network count as one client, as do all ports of an address, and all texts that
    # are no addresses.
    caplog.set_level("INFO", "sinksdk.server.audit")
    server = serving(MemoryStore(), credentials=credentials, trusted_proxies=["127.0.0.1"])
    with server as url, httpx.Client(base_url=url) as client:
        began = time.monotonic()
        for number in range(8):
            headers = {"X-Forwarded-For": forwarded.format(number + 1)}
            assert client.get("/connectors", headers=headers, auth=("anna", "wrong")).status_code == 401
        assert time.monotonic() - began > 1.5  # 0.25 + 0.5 + 1 s
    assert len(audited(caplog)) == 1


def test_a_large_body_does_not_end_the_delay(credentials: Path) -> None:
    # Regression: a request whose body exceeded the limit ended the delay of its client.
    server = serving(MemoryStore(), credentials=credentials)
    with server as url, httpx.Client(base_url=url, timeout=10) as client:
        began = time.monotonic()
        for _ in range(8):
            # sent in chunks, so its length is unknown
            body = iter([b" " * BODY_BYTES, b" "])
            headers = {"Content-Type": "application/json"}
            response = client.post("/connectors", content=body, headers=headers, auth=("anna", "wrong"))
            assert response.status_code == 401
        assert time.monotonic() - began > 1.5  # 0.25 + 0.5 + 1 s


def test_forwarded_address_cannot_forge_a_line_of_the_audit(
    credentials: Path, caplog: pytest.LogCaptureFixture
) -> None:
    # A terminal would follow its escape sequences.
    caplog.set_level("INFO", "sinksdk.server.audit")
    with serving(MemoryStore(), credentials=credentials, trusted_proxies=["127.0.0.1"]) as url:
        headers = {"X-Forwarded-For": b"\x1b[2Kx".decode()}
        assert httpx.delete(f"{url}/connectors/a", headers=headers, auth=PASSWORD).status_code == 404
    assert audited(caplog) == [r"DELETE /connectors/a by anna from \x1b[2Kx: 404"]


def test_x_forwarded_for_is_ignored_if_only_another_proxy_is_trusted(
    credentials: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "sinksdk.server.audit")
    with serving(MemoryStore(), credentials=credentials, trusted_proxies=["10.0.0.7"]) as url:
        headers = {"X-Forwarded-For": "192.0.2.77"}
        assert httpx.delete(f"{url}/connectors/a", headers=headers, auth=PASSWORD).status_code == 404
    assert audited(caplog) == ["DELETE /connectors/a by anna from 127.0.0.1: 404"]


@pytest.mark.parametrize("trusted", ["*", "proxy.example.org", "10.0.0.7/8", ""])
def test_a_trusted_proxy_must_be_an_address(trusted: str) -> None:
    # A host name would match no address, and '*' would trust every client.
    with pytest.raises(ConfigException, match="--trusted-proxy"):
        RestServer("127.0.0.1", 0, trusted_proxies=[trusted])
