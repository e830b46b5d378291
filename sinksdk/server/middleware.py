"""What stands around an application: who may ask, from where; paths, HEAD and errors as in Kafka Connect."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from fastapi import FastAPI
from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sinksdk.errors import ConfigException
from sinksdk.server.errors import answer, answer_errors

_PROBES: Final = ("/live", "/ready")
"""Paths that need no credentials: what probes a process has none, and they tell nothing else."""

_WITH_BODIES: Final = ("POST", "PUT", "PATCH")


NAMELESS: Final = "token"
"""The user whose password, in basic authentication, is any of the tokens: they have no names of their own."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is let in: bearer tokens, and users, each ``user:password``."""

    tokens: Collection[str] = ()
    users: Collection[str] = ()

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """Read a file: a line ``user:password`` is a user, one without a colon is a token; ``#`` comments.

        Raises:
            ConfigException: the file cannot be read, or has no credentials.
        """
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigException(f"the credentials {path} cannot be read: {type(error).__name__}") from None
        found = [line for line in lines if line and not line.startswith("#")]
        if not found:
            raise ConfigException(f"the credentials {path} let nobody in: write a token, or user:password")
        return cls([line for line in found if ":" not in line], [line for line in found if ":" in line])

    def allow(self, header: str) -> bool:
        """Whether an ``Authorization`` header lets in; compared in constant time.

        A browser can ask its user for a name and a password, never for a token: so a token is let in as the
        password of a user :data:`NAMELESS` as well.
        """
        scheme, _, given = header.partition(" ")
        if scheme.lower() == "bearer":
            return _is_among(given.strip(), self.tokens)
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(given, validate=True).decode()
            except ValueError:  # no base64, no ASCII, no UTF-8
                return False
            as_users = [*self.users, *(f"{NAMELESS}:{token}" for token in self.tokens)]
            return _is_among(pair, as_users)
        return False


def _is_among(given: str, known: Collection[str]) -> bool:
    # Digests of one length, all of them compared: the duration reveals nothing.
    return any([hmac.compare_digest(_digest(given), _digest(one)) for one in known])  # noqa: C419 - see above


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def protect(app: FastAPI, credentials: Credentials | None, hosts: Collection[str] | None) -> None:
    """Put it around an application.

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
    app.add_middleware(_Guard, hosts=hosts)


class _Guard:
    """Refuses what another site's page has sent (403), and bodies that do not say they are JSON (415).

    A browser lets such a page send requests to 127.0.0.1 without asking: a POST to another site without any
    check beforehand, and every request once the page's own name leads to 127.0.0.1 (DNS rebinding). The
    one comes with the page's ``Origin``, the other with its name as ``Host``.
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts

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
    """Without the port, and without the brackets of an IPv6 address."""
    try:
        return urlsplit(f"//{host}").hostname or ""
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


class _Authentication(BaseHTTPMiddleware):
    """Responds with 401 to requests without credentials, except probes of the process."""

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        super().__init__(app)
        self._credentials = credentials

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        is_probe = request.method in ("GET", "HEAD") and request.scope["path"] in _PROBES
        if is_probe or self._credentials.allow(request.headers.get("Authorization", "")):
            return await call_next(request)
        refused = answer(401, "credentials are needed: a bearer token, or user and password")
        refused.headers["WWW-Authenticate"] = 'Basic realm="sinksdk"'
        return refused


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
