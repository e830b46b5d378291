"""Connections of the REST server: unfinished requests, too many of them, and stopping."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest

from sinksdk.control.herder import Herder
from sinksdk.server import rest
from tests.memory_store import MemoryStore
from tests.server.serving import serving

HALF_HEADER = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX-Half: "
HALF_BODY = (
    b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"name": '
)


@contextmanager
def connected(url: str, sent: bytes) -> Iterator[socket.socket]:
    with closing(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)) as client:
        client.sendall(sent)
        yield client


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEADER, HALF_BODY], ids=["nothing", "half a header", "half a body"]
)
def test_connection_without_a_whole_request_is_closed(sent: bytes) -> None:
    """A client that never finishes its request does not hold a file descriptor for ever."""
    with serving(MemoryStore(), request_seconds=0.2) as url, connected(url, sent) as client:
        assert client.recv(1000) == b""  # the end, or a reset


def test_connection_kept_alive_is_closed_when_its_next_header_stays_half() -> None:
    """The time-out holds for each request of a connection."""
    whole = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(MemoryStore(), request_seconds=0.2) as url, connected(url, whole) as client:
        received = b""
        while b'{"status":"alive"}' not in received:
            received += client.recv(1000)
        client.sendall(HALF_HEADER)
        assert client.recv(1000) == b""


@pytest.mark.parametrize("sent", [HALF_HEADER, HALF_BODY], ids=["half a header", "half a body"])
def test_server_stops_while_a_request_is_unfinished(sent: bytes) -> None:
    """One client cannot keep the server from stopping on SIGTERM."""
    with serving(MemoryStore(), stop_seconds=1) as url, connected(url, sent):
        assert httpx.get(f"{url}/live").status_code == 200
        began = time.monotonic()
        # the block ends here, and the server with it
    assert time.monotonic() - began < 4


def test_server_stops_while_a_client_does_not_read_its_response() -> None:
    """A response that waits in full buffers is cancelled after the time that requests have to finish."""
    store = MemoryStore()
    Herder(store).create("archive", {"connector.class": "s3-archiver", "description": "x" * 6_000_000})
    with (
        serving(store, stop_seconds=1) as url,
        connected(url, b"GET /connectors/archive HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ):
        time.sleep(0.5)
        began = time.monotonic()
    assert time.monotonic() - began < 4


def test_connections_beyond_the_limit_are_closed_and_the_others_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Half-open requests cannot use up the file descriptors that connectors need."""
    monkeypatch.setattr(rest, "_CONNECTIONS", 3)
    with serving(MemoryStore()) as url, connected(url, HALF_HEADER), connected(url, HALF_HEADER):
        assert httpx.get(f"{url}/live").status_code == 200
        with connected(url, HALF_HEADER), pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/live")


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_body_above_the_limit_is_refused(*, chunked: bool) -> None:
    """413, in Connect's form of an error; nothing is kept of the body."""
    data = json.dumps({"name": "x", "config": {"a": "x" * 9_000_000}}).encode()
    content = (data[at : at + 65_536] for at in range(0, len(data), 65_536)) if chunked else data
    with serving(MemoryStore()) as url:
        headers = {"Content-Type": "application/json"}
        refused = httpx.post(f"{url}/connectors", content=content, headers=headers, timeout=30)
        assert (refused.status_code, refused.json()["error_code"]) == (413, 413)
        assert "8 MiB" in refused.json()["message"]


def test_lack_of_file_descriptors_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """Without it asyncio logs a stack trace for each connection that waits: 3 MB a second."""
    handler = rest._AcceptErrors()
    context = {
        "message": "socket.accept() out of system resource",
        "exception": OSError(24, "Too many open files"),
    }
    for _ in range(100):
        handler(None, context)  # type: ignore[arg-type] # of the loop it needs nothing then
    [line] = [record.getMessage() for record in caplog.records]
    assert "Too many open files" in line
    assert "ulimit -n" in line
