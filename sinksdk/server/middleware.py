"""Middleware of the REST API: roles, audit, body limit; paths, HEAD and errors as in Kafka Connect."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Collection, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sinksdk.errors import ConfigException
from sinksdk.server.errors import answer, answer_errors

log = logging.getLogger(__name__)
audit = logging.getLogger("sinksdk.server.audit")
"""Who changed what, and who was refused."""

_PROBES: Final = ("/live", "/ready")
"""Paths that need no credentials: what probes a process has none, and they tell nothing else."""
_MEASURED: Final = ("/metrics", "/health")
"""Paths for the role METRICS."""
_READS: Final = ("GET", "HEAD", "OPTIONS")

BODY_BYTES: Final = 8 * 1024 * 1024
"""Largest body of a request: offsets of some 50,000 partitions."""

_WITH_BODIES: Final = ("POST", "PUT", "PATCH")


NAMELESS: Final = "token"
"""The user whose password, in basic authentication, is any of the tokens: they have no names of their own."""


class Role(IntEnum):
    """What a client may do; each role includes those before it."""

    METRICS = 1
    """``GET /metrics`` and ``/health``: Prometheus."""
    READ = 2
    """Every GET: an operator who looks, a dashboard."""
    WRITE = 3
    """Everything. Who may create connectors runs code with the server's rights."""


class Client(NamedTuple):
    """Who sent a request; ``name`` is a user's, or the line of a token in the file of credentials."""

    name: str
    role: Role


class Login(NamedTuple):
    """One line of the file of credentials: ``text`` is a token, or ``user:password``."""

    text: str
    role: Role = Role.WRITE
    line: int = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who has access: bearer tokens, and users, each ``user:password``."""

    tokens: Collection[Login] = ()
    users: Collection[Login] = ()

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """Read a file of credentials.

        A line ``user:password`` is a user, one without a colon is a token; ``#`` begins a comment. A line
        ``[metrics]``, ``[read]`` or ``[write]`` sets the role of the lines below it; until the first of
        them it is ``write``.

        Raises:
            ConfigException: the file cannot be read, has no credentials, or names another role.
        """
        try:
            lines = path.read_text(encoding="utf-8-sig").splitlines()
            mode = path.stat().st_mode
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigException(f"the credentials {path} cannot be read: {type(error).__name__}") from None
        role, found = Role.WRITE, list[Login]()
        for number, line in enumerate(map(str.strip, lines), 1):
            if line.startswith("[") and line.endswith("]"):
                role = _role(line[1:-1], f"the credentials {path}, line {number}")
            elif line and not line.startswith("#"):
                found.append(Login(line, role, number))
        if not found:
            raise ConfigException(f"the credentials {path} let nobody in: write a token, or user:password")
        if mode & 0o077:
            # No refusal: Kubernetes mounts secrets so, inside a container that others do not enter.
            log.warning(
                "other users of this machine may read the credentials in %s (mode %04o): chmod 600 %s",
                *(path, mode & 0o777, path),
            )
        return cls(
            [login for login in found if ":" not in login.text],
            [login for login in found if ":" in login.text],
        )

    def client(self, header: str) -> Client | None:
        """Return whose ``Authorization`` header it is; None if it is not valid. Compared in constant time.

        A browser can ask its user for a name and a password, never for a token: so a token is valid as the
        password of a user :data:`NAMELESS` as well.
        """
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "bearer":
            return _found(given.strip(), [(login.text, login) for login in self.tokens])
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(given, validate=True).decode()
            except ValueError:  # no base64, no ASCII, no UTF-8
                return None
            as_users = [(f"{NAMELESS}:{login.text}", login) for login in self.tokens]
            return _found(pair, [*((login.text, login) for login in self.users), *as_users])
        return None


def _role(name: str, where: str) -> Role:
    try:
        return Role[name.strip().upper()]
    except KeyError:
        raise ConfigException(f"{where}: [{name}] is no role: write [metrics], [read] or [write]") from None


def _found(given: str, known: Collection[tuple[str, Login]]) -> Client | None:
    # Digests of one length, all of them compared: the duration reveals nothing.
    equal = [login for text, login in known if hmac.compare_digest(_digest(given), _digest(text))]
    if not equal:
        return None
    login = max(equal, key=lambda login: login.role)
    user, colon, _ = login.text.partition(":")
    return Client(user if colon else f"token of line {login.line}", login.role)


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def protect(app: FastAPI, credentials: Credentials | None, hosts: Collection[str] | None) -> None:
    """Add the middleware to an application.

    Args:
        credentials: who is let in; None: everybody who reaches it.
        hosts: names besides ``localhost`` and addresses by which the server may be asked for; None: any. (An
            address cannot be made to lead elsewhere, a name can.)
    """
    answer_errors(app)
    app.add_middleware(_PathSegments)
    app.add_middleware(_Heads)
    if credentials is not None:
        app.add_middleware(_Authentication, credentials=credentials)
    app.add_middleware(_Audit)
    app.add_middleware(_BodyLimit)
    app.add_middleware(_Guard, hosts=hosts)


class _Guard:
    """Refuses what another site's page has sent (403), and bodies that do not say they are JSON (415).

    A browser lets such a page send requests to 127.0.0.1 without asking: a POST to another site without any
    check beforehand, and every request once the page's own name leads to 127.0.0.1 (DNS rebinding). The
    one comes with the page's ``Origin``, the other with its name as ``Host``.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        self._app = app
        self._hosts = None if hosts is None else frozenset(map(_name_of, hosts)) - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(Request(scope)) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        host, origin = request.headers.get("Host", ""), request.headers.get("Origin")
        if self._hosts is not None and host and not self._is_ours(host):
            return answer(
                403,
                f"this server is not '{host}': ask for it as localhost or by its address; a name that is its "
                f"own is told to it with --allowed-host",
            )
        if origin is not None and not self._is_same_site(origin, host):
            return answer(403, f"requests of pages from {origin} are refused")
        if request.method in _WITH_BODIES and _has_body(request) and not _is_json(request):
            return answer(415, "write the body as JSON, and say so: Content-Type: application/json")
        return None

    def _is_ours(self, host: str) -> bool:
        name = _name_of(host)
        return name == "localhost" or _is_address(name) or name in (self._hosts or ())

    def _is_same_site(self, origin: str, host: str) -> bool:
        """Behind a proxy that gives its own ``Host`` the page's is another one: then it must be named."""
        try:
            site = urlsplit(origin)
        except ValueError:
            return False
        return bool(site.netloc) and (site.netloc == host or site.hostname in (self._hosts or ()))


def _name_of(host: str) -> str:
    """Return a host in lower case, without port, dot at its end, and brackets of an IPv6 address."""
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


class _BodyLimit:
    """Refuses bodies above :data:`BODY_BYTES` with 413, also those that do not say their length."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        length = Request(scope).headers.get("Content-Length", "0")
        if length.isdigit() and int(length) > BODY_BYTES:
            await answer(413, _TOO_LARGE)(scope, receive, send)
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


_TOO_LARGE: Final = f"the body has more than {BODY_BYTES // 1024**2} MiB: send it in several requests"


class _Audit:
    """Logs who changed what: each request that may change something, with its user, address and status."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] in _READS:
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
"""Where a request's scope holds the name of its client."""


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return _printable(client[0]) if client else "unknown"


def _network(address: str) -> str:
    """Return what failures are counted by: a client may have all addresses of an IPv6 network of 64 bits.

    Texts that are no address, which a proxy forwards, count together: a client may have any of them.
    """
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(ip, ipaddress.IPv4Address):
        return address
    return str(ip.ipv4_mapped or ipaddress.ip_network((int(ip), 64), strict=False))


def _printable(text: str) -> str:
    # A path may hold a line's end, percent-encoded: it would forge a line of the audit.
    return text.encode("unicode_escape").decode()


@dataclass(slots=True)
class _Failures:
    """Requests without valid credentials from one address, or IPv6 network."""

    count: int = 0
    last: float = 0.0
    logged_at: float | None = None
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Authentication(BaseHTTPMiddleware):
    """Responds with 401 to requests without valid credentials, and with 403 where the role does not suffice.

    A client that guesses is slowed down: after :data:`_FREE` wrong credentials from one address (IPv6: one
    network of 64 bits) each further 401 waits, up to :data:`_SLOWEST` seconds, one at a time. Valid
    credentials never wait.
    """

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
            return await self._refused(request, gave_some=bool(header))
        request.scope[_CLIENT] = client.name
        needed = _needed(request.method, path)
        if client.role < needed:
            return answer(
                403,
                f"{client.name} has the role {client.role.name.lower()}, and {request.method} {path} needs "
                f"{needed.name.lower()}: the server's file of credentials says who has which role",
            )
        return await call_next(request)

    async def _refused(self, request: Request, *, gave_some: bool) -> Response:
        if gave_some:  # a browser's first request has none, and asks its user then
            failures = self._noted(_address(request.scope))
            if failures.count > _FREE:
                seconds = min(_SLOWEST, _FIRST * 2.0 ** (failures.count - _FREE - 1))
                await _unless_gone(request, _in_turn(failures.turn, seconds))
        refused = answer(401, "credentials are needed: a bearer token, or user and password")
        refused.headers["WWW-Authenticate"] = 'Basic realm="sinksdk"'
        return refused

    def _noted(self, address: str) -> _Failures:
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
                "request from %s with wrong credentials (%d in a row); its next ones are logged each %.0f s",
                *(address, failures.count, _FORGOTTEN),
            )
        return failures


async def _in_turn(turn: asyncio.Lock, seconds: float) -> None:
    async with turn:
        await asyncio.sleep(seconds)


async def _unless_gone(request: Request, delay: Coroutine[None, None, None]) -> None:
    """Wait, but no longer than the client: those that guess and hang up would fill the memory with delays."""
    waits = asyncio.ensure_future(delay), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


async def _disconnected(request: Request) -> None:
    is_there = True
    while is_there:
        with suppress(HTTPException):  # the body is too large: the client waits all the same
            is_there = (await request.receive())["type"] != "http.disconnect"


_FREE: Final = 5  # wrong credentials from one address that do not wait
_FIRST: Final = 0.25  # seconds that the first of the others waits; doubled with each
_SLOWEST: Final = 4.0  # seconds
_FORGOTTEN: Final = 60.0  # seconds until the failures of an address are forgotten
_ADDRESSES: Final = 1000  # and networks remembered: more would let a client fill the memory


def _needed(method: str, path: str) -> Role:
    if method not in _READS:
        return Role.WRITE
    return Role.METRICS if path in _MEASURED else Role.READ


class _PathSegments:
    """Leaves ``%2F`` in a path as it is, where servers decode all of it, and takes a slash at its end away.

    As Connect does, ``/connectors/`` is ``/connectors``. Parameters in paths are of
    :data:`~sinksdk.server.parameters.Name`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (raw := scope.get("raw_path")):
            scope = {**scope, "path": _with_segments(raw)}
        await self._app(scope, receive, send)


def _with_segments(raw: bytes) -> str:
    """The path decoded, but for slashes within its segments, and for percent signs: they tell these apart."""
    segments = (unquote(segment) for segment in raw.decode("latin-1").split("/"))
    path = "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)
    return path.rstrip("/") or "/"


class _Heads:
    """Answers HEAD as GET, without the body (RFC 9110): load balancers and monitors ask so."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        await self._app({**scope, "method": "GET"}, receive, without_body)
