"""Serves the REST interface on a port, in its own thread."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import h11
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from sinksdk.errors import ConfigException, ConnectException
from sinksdk.model.status import Waiting
from sinksdk.runtime.backoff import in_words
from sinksdk.server.app import create_waiting_app
from sinksdk.server.credentials import Credentials
from sinksdk.settings.addresses import is_loopback_host

log = logging.getLogger(__name__)

_POLL: Final = 0.01  # seconds between checks whether the port is open
_START: Final = 10.0  # seconds until the port must be open
# Seconds until a request must have arrived completely, or its client must read more of the response.
_REQUEST: Final = 20.0
_STOP: Final = 5  # seconds for running requests when the server stops
# Each connection uses a file descriptor, and Kafka's clients need many of them.
_CONNECTIONS: Final = 256
_UNREAD: Final = 64 * 1024  # bytes of unread responses that the kernel buffers for a client


class RestServer:
    """Serves requests during a ``with`` block; until :meth:`serve`, it responds that it waits for its store.

    Args:
        trusted_proxies: addresses and networks of the proxies whose ``X-Forwarded-For`` names the client.
    """

    def __init__(
        self,
        host: str,
        port: int,
        credentials: Path | None = None,
        allowed_hosts: Sequence[str] = (),
        *,
        trusted_proxies: Sequence[str] = (),
        request_seconds: float = _REQUEST,
        stop_seconds: int = _STOP,
    ) -> None:
        self._credentials = Credentials.read(credentials) if credentials else None
        if self._credentials is None and not is_loopback_host(host):
            raise ConfigException(
                f"{host} is reachable from other machines: give a credentials file with --credentials, or "
                f"listen on 127.0.0.1"
            )
        # Without credentials the Host header reveals requests of other sites' pages (DNS rebinding).
        self._hosts = allowed_hosts if self._credentials is None or allowed_hosts else None
        self._stop_seconds = stop_seconds
        self._waiting: Waiting | None = None
        self._app: ASGIApp = create_waiting_app(self._why, self._credentials, hosts=self._hosts)
        config = uvicorn.Config(
            self._handle,
            interface="asgi3",
            host=host,
            port=port,
            access_log=False,
            log_config=None,  # uvicorn logs through our handlers, which hide secrets
            # uvicorn trusts clients on 127.0.0.1 by default, which could then forge their address in the
            # audit log.
            proxy_headers=bool(trusted_proxies),
            forwarded_allow_ips=list(map(_network, trusted_proxies)),
            http=_connection_class(request_seconds),
            ws="none",  # the time-outs and the limit of connections cover HTTP only
            # A client that sends half a body, or does not read, would keep the server from stopping.
            timeout_graceful_shutdown=stop_seconds,
            backlog=64,  # asyncio logs one error per waiting connection when it cannot accept
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="rest", daemon=True)

    async def _run(self) -> None:
        asyncio.get_running_loop().set_exception_handler(_AcceptErrors())
        await self._server.serve()

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _why(self) -> str:
        if self._waiting is None:
            return "The server is opening its store."
        return f"The server is waiting for its store, {in_words(self._waiting)}"

    def show_waiting(self, waiting: Waiting | None) -> None:
        self._waiting = waiting

    def serve(self, app: Callable[[Credentials | None, Collection[str] | None], ASGIApp]) -> None:
        """Respond with the application that ``app`` creates for credentials and accepted host names."""
        self._app = app(self._credentials, self._hosts)

    def __enter__(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + _START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                config = self._server.config
                raise ConnectException(
                    f"cannot listen on {config.host}:{config.port}: the port may be in use"
                )
            time.sleep(_POLL)

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(self._stop_seconds + _STOP)
        if self._thread.is_alive():
            log.warning(
                "the REST server did not stop within %d s; the process exits without it",
                self._stop_seconds + _STOP,
            )


def _network(address: str) -> str:
    try:
        return str(ipaddress.ip_network(address))
    except ValueError as error:
        raise ConfigException(
            f"--trusted-proxy {address!r} is not an address or network such as 10.0.0.7 or 10.0.0.0/8: "
            f"{error}"
        ) from None


def _connection_class(patience: float) -> type[asyncio.Protocol]:
    return type("_Connection", (_Connection,), {"patience": patience, "full": _RateLimit()})


class _Connection(H11Protocol):
    """A connection with time-outs, because uvicorn's own waits without limit for its client."""

    patience: float
    full: _RateLimit

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._since = self.loop.time()  # the connection's start, or its last response

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn's
        super().connection_made(transport)
        # By default Linux buffers some 2.5 MiB for a client that does not read.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNREAD)
        # Pause writing while any byte is unsent: by default up to 64 KiB count as sent.
        transport.set_write_buffer_limits(high=0)
        # A probe is always served: a new connection replaces the one that has waited longest for its client,
        # or else the one with the longest-running request.
        if len(self.connections) > _CONNECTIONS:
            others = (each for each in self.connections if isinstance(each, _Connection) and each is not self)
            min(others, key=_Connection._precedence)._replace()
        self._expect_request()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect_request()

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY:
            self._expect_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        _cancel(self._unread)

    def connection_lost(self, exc: Exception | None) -> None:
        _cancel(self._deadline)
        _cancel(self._unread)
        super().connection_lost(exc)

    def _awaits_request(self) -> bool:
        return self.conn.their_state in (h11.IDLE, h11.SEND_BODY)

    def _precedence(self) -> tuple[bool, float]:
        return not (self._awaits_request() or self.flow.write_paused), self._since

    def _replace(self) -> None:
        # Removed at once, so that the next new connection replaces another one.
        self.connections.discard(self)
        self.transport.abort()
        if self.full.is_due():
            log.warning(
                "more than %d open connections: closing those that have waited longest for their client",
                _CONNECTIONS,
            )

    def _expect_request(self) -> None:
        if not self._awaits_request():
            _cancel(self._deadline)
            self._deadline = None
        elif self._deadline is None:
            self._deadline = self.loop.call_later(self.patience, self._abort_idle)

    def _abort_idle(self) -> None:
        self._deadline = None
        if self._awaits_request():
            log.info(
                "closed a connection of %s: no complete request within %.0f s", self.client, self.patience
            )
            self.transport.abort()

    def _expect_reading(self) -> None:
        left = self.transport.get_write_buffer_size()
        self._unread = self.loop.call_later(self.patience, self._abort_unread, left)

    def _abort_unread(self, left: int) -> None:
        if self.transport.get_write_buffer_size() < left:  # the client reads the response slowly
            self._expect_reading()
            return
        log.info(
            "closed a connection of %s: the client has read nothing for %.0f s", self.client, self.patience
        )
        self.transport.abort()


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()


class _AcceptErrors:
    """Logs a lack of file descriptors every ten minutes; asyncio would for each waiting connection."""

    def __init__(self) -> None:
        self._lines = _RateLimit()

    def __call__(self, loop: asyncio.AbstractEventLoop, context: Mapping[str, Any]) -> None:
        if "out of system resource" not in str(context.get("message")):
            loop.default_exception_handler(dict(context))
            return
        if self._lines.is_due():
            log.error(
                "the REST server cannot accept connections: %s; the limit of open files is too low for the "
                "number of connectors: raise it (ulimit -n, LimitNOFILE of the systemd unit)",
                context.get("exception"),
            )


class _RateLimit:
    def __init__(self) -> None:
        self._logged_at: float | None = None

    def is_due(self) -> bool:
        now = time.monotonic()
        if self._logged_at is not None and now - self._logged_at <= _LOG_INTERVAL:
            return False
        self._logged_at = now
        return True


_LOG_INTERVAL: Final = 600.0  # seconds
