"""Connections of the REST server: time-outs, their limit, and the server's end."""

from __future__ import annotations

import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from sinksdk.control.herder import Herder
from sinksdk.server import middleware, rest
from sinksdk.store import Store
from tests.helpers.memory_store import MemoryStore
from tests.server.serving import serving

HALF_HEADER = b"GET /connectors HTTP/1.1\r\nHost: localhost\r\nX-Half: "
HALF_BODY = (
    b"POST /connectors HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b'Content-Length: 1000\r\n\r\n{"name": '
)
NOT_STOPPED = "did not stop within"


@contextmanager
def connected(url: str, sent: bytes, *, buffer: int | None = None) -> Iterator[socket.socket]:
    """Connect and send ``data``; ``buffer`` limits the bytes that the system receives for the client."""
    with closing(socket.socket()) as client:
        if buffer is not None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        client.settimeout(30)
        client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        client.sendall(sent)
        yield client


def expect_alive(url: str) -> None:
    assert httpx.get(f"{url}/live", timeout=30).status_code == 200


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@contextmanager
def unread_responses(url: str) -> Iterator[socket.socket]:
    """Send many requests at once, and read no response."""
    requests = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400
    with closing(socket.socket()) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        client.settimeout(0.05)
        with suppress(OSError):  # the server takes no more
            for _ in range(7):
                client.sendall(requests)
        yield client


def is_closed(client: socket.socket) -> bool:
    """Return whether the server has closed the connection, without reading from it.

    A server that has read all requests closes without a reset, and its FIN waits behind the unread responses.
    So only sending further data shows that the connection is closed.
    """
    try:
        client.send(b"G")
    except TimeoutError:  # the buffers are full
        return False
    except ConnectionError:
        return True
    return False


def received_until_closed(client: socket.socket) -> int:
    """Return how many bytes arrive until the server closes the connection. Raises TimeoutError."""
    client.settimeout(0.5)
    received = 0
    with suppress(ConnectionError):
        while piece := client.recv(1_000_000):
            received += len(piece)
    return received


@pytest.mark.parametrize(
    "sent", [b"", HALF_HEADER, HALF_BODY], ids=["nothing", "half a header", "half a body"]
)
def test_a_connection_without_a_complete_request_is_closed(sent: bytes) -> None:
    with serving(MemoryStore(), request_seconds=0.2) as url, connected(url, sent) as client:
        assert client.recv(1000) == b""  # the end of the stream, or a reset


def test_the_request_timeout_applies_to_each_request_of_a_connection() -> None:
    whole = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(MemoryStore(), request_seconds=1) as url, connected(url, whole) as client:
        received = b""
        while b'{"status":"alive"}' not in received:
            piece = client.recv(1000)
            assert piece, received
            received += piece
        client.sendall(HALF_HEADER)
        assert client.recv(1000) == b""


@pytest.mark.parametrize("sent", [HALF_HEADER, HALF_BODY], ids=["half a header", "half a body"])
def test_server_stops_while_a_request_is_unfinished(
    sent: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "_STOP", 30)
    with ExitStack() as clients:
        with serving(MemoryStore(), request_seconds=300, stop_seconds=1) as url:
            clients.enter_context(connected(url, sent))
            expect_alive(url)
        # The server has stopped while the client was still connected.
        assert NOT_STOPPED not in caplog.text


def test_server_stops_while_a_client_does_not_read_its_response(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    Herder(store).create("archive", {"connector.class": "s3-archiver", "description": "x" * 6_000_000})
    monkeypatch.setattr(rest, "_STOP", 30)
    with ExitStack() as clients:
        with serving(store, request_seconds=300, stop_seconds=1) as url:
            sent = b"GET /connectors/archive HTTP/1.1\r\nHost: localhost\r\n\r\n"
            client = clients.enter_context(connected(url, sent, buffer=65_536))
            assert client.recv(1, socket.MSG_PEEK)  # the response has begun
        assert NOT_STOPPED not in caplog.text


def test_a_connection_above_the_limit_replaces_the_longest_waiting_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest, "_CONNECTIONS", 3)
    with (
        serving(MemoryStore()) as url,
        connected(url, HALF_HEADER) as first,
        connected(url, HALF_HEADER) as second,
        connected(url, HALF_BODY),
    ):
        for _ in range(2):  # each request uses another connection
            expect_alive(url)
        assert first.recv(1000) == b""
        second.sendall(b"\r\n\r\n")
        assert second.recv(1000).startswith(b"HTTP/1.1 200")
    [line] = [record.getMessage() for record in caplog.records if "longest" in record.getMessage()]
    assert "more than 3 open connections" in line


class SlowStore(MemoryStore):
    """A store that responds only after it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.entries: list[str] = []

    def snapshot(self, prefix: str) -> Store:
        self.entries.append(prefix)
        self.released.wait(30)
        return super().snapshot(prefix)

    def await_requests(self, number: int) -> None:
        """Wait until this many requests are running."""
        until(lambda: len(self.entries) == number)


READ = b"GET /connectors/archive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def test_idle_connections_are_replaced_before_running_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rest, "_CONNECTIONS", 3)
    store = SlowStore()
    with (
        serving(store) as url,
        connected(url, READ) as working,
        connected(url, HALF_HEADER),
        connected(url, HALF_HEADER),
    ):
        store.await_requests(1)
        expect_alive(url)
        store.released.set()
        assert working.recv(1000).startswith(b"HTTP/1.1 404")


def test_a_probe_is_served_while_all_connections_have_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Requests without valid credentials, which the server delays, need no token.
    monkeypatch.setattr(rest, "_CONNECTIONS", 3)
    store = SlowStore()
    with (
        serving(store) as url,
        connected(url, READ),
        connected(url, READ),
        connected(url, READ) as last,
    ):
        store.await_requests(3)
        expect_alive(url)
        store.released.set()
        assert last.recv(1000).startswith(b"HTTP/1.1 404")


@pytest.mark.extended
@pytest.mark.parametrize("sent", [HALF_HEADER, HALF_BODY], ids=["half a header", "half a body"])
def test_a_probe_is_served_next_to_300_unfinished_requests(sent: bytes) -> None:
    # Anyone can open connections without a token; a supervisor must not kill the server for it.
    with serving(MemoryStore()) as url, ExitStack() as clients:
        for _ in range(300):
            clients.enter_context(connected(url, sent))
        for _ in range(5):
            expect_alive(url)


@pytest.mark.extended
def test_a_probe_is_served_next_to_300_clients_that_do_not_read() -> None:
    with serving(MemoryStore(), request_seconds=1, stop_seconds=1) as url, ExitStack() as clients:
        for _ in range(300):
            clients.enter_context(unread_responses(url))
        for _ in range(5):
            expect_alive(url)


def test_a_client_that_reads_no_small_responses_is_disconnected() -> None:
    # Small responses fill the buffers, too; waiting requests must not keep the connection open.
    with serving(MemoryStore(), request_seconds=1) as url, unread_responses(url) as client:
        until(lambda: is_closed(client))


@pytest.mark.parametrize("ending", ["", "Connection: close\r\n"], ids=["kept alive", "to be closed"])
def test_a_client_that_does_not_read_a_large_response_is_disconnected(
    ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = MemoryStore()
    Herder(store).create("archive", {"connector.class": "s3-archiver", "description": "x" * 6_000_000})
    sent = f"GET /connectors/archive HTTP/1.1\r\nHost: localhost\r\n{ending}\r\n".encode()
    caplog.set_level(logging.INFO)
    with serving(store, request_seconds=1) as url, connected(url, sent, buffer=65_536) as client:
        # Only the log shows the reason: further data would be an unfinished request, after which the server
        # closes, too.
        until(lambda: "the client has read nothing" in caplog.text)
        assert received_until_closed(client) < 6_000_000


@pytest.mark.extended
def test_a_slow_client_gets_its_whole_response() -> None:
    store = MemoryStore()
    Herder(store).create("archive", {"connector.class": "s3-archiver", "description": "x" * 6_000_000})
    sent = b"GET /connectors/archive HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    # With a small buffer, the server writes for as long as the client reads.
    with serving(store, request_seconds=2) as url, connected(url, sent, buffer=65_536) as client:
        began, received = time.monotonic(), 0
        while piece := client.recv(300_000):
            received += len(piece)
            time.sleep(0.15)
    assert received > 6_000_000
    assert time.monotonic() - began > 2 * 2


def test_a_connection_with_half_a_request_after_a_complete_one_is_closed() -> None:
    # Half of this body came together with the previous request: its deadline must start without further data.
    whole = b"GET /live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with serving(MemoryStore(), request_seconds=0.5) as url, connected(url, whole + HALF_BODY) as client:
        while client.recv(1000):
            pass


@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "in chunks"])
def test_a_body_above_the_limit_is_refused_with_413(*, chunked: bool) -> None:
    data = json.dumps({"name": "x", "config": {"a": "x" * 9_000_000}}).encode()
    content = (data[at : at + 65_536] for at in range(0, len(data), 65_536)) if chunked else data
    with serving(MemoryStore()) as url:
        headers = {"Content-Type": "application/json"}
        refused = httpx.post(f"{url}/connectors", content=content, headers=headers, timeout=30)
        assert (refused.status_code, refused.json()["error_code"]) == (413, 413)
        assert "8 MiB" in refused.json()["message"]


def test_lack_of_file_descriptors_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    # asyncio itself would log a stack trace for each waiting connection: 3 MB a second.
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


def test_delays_end_when_their_clients_disconnect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Clients that guess passwords and hang up must not leave an endless queue of delays.
    for name, number in {"_FREE": 0, "_FIRST": 1, "_SLOWEST": 1}.items():
        monkeypatch.setattr(middleware, name, number)
    credentials = tmp_path / "credentials"
    credentials.write_text("a-token\n")
    credentials.chmod(0o600)
    guess = READ.replace(b"Connection: close", b"Authorization: Bearer wrong")
    with serving(MemoryStore(), credentials=credentials) as url:
        for _ in range(30):
            with connected(url, guess):
                pass
        began = time.monotonic()
        headers = {"Authorization": "Bearer wrong"}
        assert httpx.get(f"{url}/connectors", headers=headers, timeout=30).status_code == 401
    assert 1 <= time.monotonic() - began < 20  # less than the 30 s of all their delays
