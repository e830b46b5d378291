"""Middleware of the REST API: authentication, audit, body limit; paths and HEAD as in Kafka Connect."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sinksdk.server.credentials import Credentials, Role
from sinksdk.server.errors import add_error_handlers, error_response

# Changes with their client, and failed authentications.
audit = logging.getLogger("sinksdk.server.audit")

# No authentication: probes have no credentials, and the responses disclose nothing.
_PROBES: Final = ("/live", "/ready")
# The role METRICS may read these paths.
_MEASURED: Final = ("/metrics", "/health")
_READS: Final = ("GET", "HEAD", "OPTIONS")

BODY_BYTES: Final = 8 * 1024 * 1024  # bytes: enough for the offsets of some 50,000 partitions

_WITH_BODIES: Final = ("POST", "PUT", "PATCH")


def protect(app: FastAPI, credentials: Credentials | None, hosts: Collection[str] | None) -> None:
    """Add the middleware to an application; None accepts all clients, or all ``Host`` headers."""
    add_error_handlers(app)
    app.add_middleware(_PathSegments)
    app.add_middleware(_Heads)
    if credentials is not None:
        app.add_middleware(_Authentication, credentials=credentials)
    app.add_middleware(_Audit)
    app.add_middleware(_BodyLimit)
    # DNS rebinding can redirect a name but not an address, so localhost and IP addresses are always accepted.
    app.add_middleware(_Guard, hosts=hosts)


class _Middleware:
    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._handle if scope["type"] == "http" else self._app)(scope, receive, send)

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError


class _Guard(_Middleware):
    """Refuses requests of other sites' pages (403) and bodies without a JSON Content-Type (415)."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        super().__init__(app)
        self._hosts = None if hosts is None else frozenset(map(_name_of, hosts)) - {""}

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        await (self._refusal(Request(scope)) or self._app)(scope, receive, send)

    # Browsers let a page send a POST to 127.0.0.1 without a preflight request, and any request once the
    # page's name resolves to 127.0.0.1 (DNS rebinding). The POST names the page as its Origin; a request
    # after DNS rebinding has the page's name as its Host.
    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if self._hosts is not None and host and not self._is_ours(host):
            return error_response(
                403,
                f"the host '{host}' is not accepted: address the server as localhost or by its IP address, "
                f"or start it with --allowed-host for this name",
            )
        if origin is not None and not self._is_same_site(origin, host):
            return error_response(403, f"requests from pages of {origin} are refused")
        if request.method in _WITH_BODIES and _has_body(request) and not _is_json(request):
            return error_response(415, "the body must be JSON, with Content-Type: application/json")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        return name == "localhost" or _is_address(name) or name in (self._hosts or ())

    def _is_same_site(self, origin: str, host: str) -> bool:
        # A proxy may replace ``Host`` by its own name: then the name in ``Origin`` must be allowed.
        try:
            site = urlsplit(origin)
        except ValueError:
            return False
        return bool(site.netloc) and (site.netloc == host or site.hostname in (self._hosts or ()))


def _name_of(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _has_body(request: Request) -> bool:
    return request.headers.get("Content-Length", "0") != "0" or "Transfer-Encoding" in request.headers


def _is_json(request: Request) -> bool:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))


class _BodyLimit(_Middleware):
    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        length = Request(scope).headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > BODY_BYTES:
            await error_response(413, _TOO_LARGE)(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            body = message.get("body", b"")
            received += len(body)
            if body and received > BODY_BYTES:
                raise HTTPException(413, _TOO_LARGE)
            return message

        await self._app(scope, counted, send)


_TOO_LARGE: Final = f"the body is larger than {BODY_BYTES // 1024**2} MiB: split it into several requests"


class _Audit(_Middleware):
    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] in _READS:
            await self._app(scope, receive, send)
            return

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                audit.info(
                    "%s %s by %s from %s: %d",
                    *(scope["method"], _printable(scope["path"]), scope.get(_CLIENT, "anonymous")),
                    *(_address(scope), message["status"]),
                )
            await send(message)

        await self._app(scope, receive, noted)


_CLIENT: Final = "sinksdk.client"


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return _printable(client[0]) if client else "unknown"


def _network(address: str) -> str:
    try:
        # A client may own all addresses of a 64-bit IPv6 network, and choose any text behind a proxy.
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False))


def _printable(text: str) -> str:
    # A percent-encoded newline in a path would forge an audit line.
    return text.encode("unicode_escape").decode()


@dataclass(slots=True)
class _Failures:
    count: int = 0
    last: float = 0.0
    logged_at: float | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Authentication(BaseHTTPMiddleware):
    """Responds with 401 to requests without valid credentials, and with 403 if the role does not suffice."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        super().__init__(app)
        self._credentials = credentials
        self._failures: OrderedDict[str, _Failures] = OrderedDict()

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        path = request.scope["path"]
        if request.method in ("GET", "HEAD") and path in _PROBES:
            return await call_next(request)
        header = request.headers.get("Authorization", "")
        client = self._credentials.client(header)
        if client is None:
            return await self._refuse(request, has_credentials=bool(header))
        request.scope[_CLIENT] = client.name
        needed = _needed(request.method, path)
        if client.role < needed:
            return error_response(
                403,
                f"{client.name} has the role {client.role.name.lower()}, but {request.method} {path} needs "
                f"{needed.name.lower()}: change the role in the server's credentials file",
            )
        return await call_next(request)

    async def _refuse(self, request: Request, *, has_credentials: bool) -> Response:
        # A browser sends its first request without credentials, and asks the user after the 401.
        if has_credentials:
            failures = self._count_failure(_address(request.scope))
            # Guessing is slowed down: wrong credentials of one address are refused with growing delays, one
            # at a time. Valid credentials are never delayed.
            if failures.count > _FREE:
                seconds = min(_SLOWEST, _FIRST * 2.0 ** (failures.count - _FREE - 1))
                await _until_disconnected(request, _in_turn(failures.turn, seconds))
        refused = error_response(401, "authentication required: send a bearer token, or user and password")
        refused.headers["WWW-Authenticate"] = 'Basic realm="sinksdk"'
        return refused

    def _count_failure(self, address: str) -> _Failures:
        now = time.monotonic()
        network = _network(address)
        failures = self._failures.setdefault(network, _Failures())
        self._failures.move_to_end(network)
        while len(self._failures) > _ADDRESSES:
            self._failures.popitem(last=False)
        if now - failures.last > _FORGOTTEN:
            failures.count = 0
        failures.count, failures.last = failures.count + 1, now
        if failures.logged_at is None or now - failures.logged_at > _FORGOTTEN:
            failures.logged_at = now
            audit.warning(
                "authentication of %s failed: wrong credentials (%d in a row); further failures are logged "
                "every %.0f s",
                *(address, failures.count, _FORGOTTEN),
            )
        return failures


async def _in_turn(turn: asyncio.Lock, seconds: float) -> None:
    async with turn:
        await asyncio.sleep(seconds)


async def _until_disconnected(request: Request, delay: Coroutine[None, None, None]) -> None:
    # Clients that guess and disconnect would fill the memory with delays.
    waits = asyncio.ensure_future(delay), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def _disconnected(request: Request) -> None:
    is_connected = True
    while is_connected:
        with suppress(HTTPException):  # the body is too large, but the client still waits
            is_connected = (await request.receive())["type"] != "http.disconnect"


_FREE: Final = 5  # number of wrong credentials of one address that are answered without a delay
_FIRST: Final = 0.25  # seconds of the first delay; doubled with each failure
_SLOWEST: Final = 4.0  # seconds
_FORGOTTEN: Final = 60.0  # seconds until the failures of an address are forgotten
_ADDRESSES: Final = 1000  # addresses and networks remembered, so that clients cannot fill the memory


def _needed(method: str, path: str) -> Role:
    if method not in _READS:
        return Role.WRITE
    return Role.METRICS if path in _MEASURED else Role.READ


class _PathSegments(_Middleware):
    """Keeps ``%2F`` in a path segment encoded, and removes a trailing slash, as Kafka Connect does."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if raw := scope.get("raw_path"):
            scope = {**scope, "path": _with_segments(raw)}
        await self._app(scope, receive, send)


def _with_segments(raw: bytes) -> str:
    # Percent signs stay encoded too: otherwise "%2F" and "%252F" in a segment would become the same.
    segments = (unquote(segment) for segment in raw.decode("latin-1").split("/"))
    path = "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)
    return path.rstrip("/") or "/"


class _Heads(_Middleware):
    """Handles HEAD as GET without the body (RFC 9110), for load balancers and monitors."""

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, without_body)
