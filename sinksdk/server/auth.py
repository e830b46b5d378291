"""Who may ask: a bearer token, or a user with a password. Needed wherever the server is not on loopback."""

from __future__ import annotations

import base64
import hashlib
import hmac
import ipaddress
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from sinksdk.errors import ConfigException
from sinksdk.server.admin import PROBES
from sinksdk.server.errors import answer

NAMELESS: Final = "token"
"""The user whose password, in basic authentication, is any of the tokens: they have no names of their own."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who is let in.

    Args:
        tokens: bearer tokens.
        users: each ``user:password``.
    """

    tokens: Collection[str] = ()
    users: Collection[str] = ()

    @classmethod
    def read(cls, path: Path) -> Credentials:
        """Read a file: a line ``user:password`` is a user, one without a colon is a token; ``#`` comments.

        Raises:
            ConfigException: the file cannot be read, or lets nobody in.
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
    # Digests have one length, and all are compared: how long it takes tells nothing.
    return any([hmac.compare_digest(_digest(given), _digest(one)) for one in known])  # noqa: C419 - as said


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Authentication(BaseHTTPMiddleware):
    """Answers 401 to whoever has no credentials, but for probes of the process.

    Args:
        app: what is guarded.
        credentials: who is let in.
    """

    def __init__(self, app: ASGIApp, credentials: Credentials) -> None:
        super().__init__(app)
        self._credentials = credentials

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """See the class."""
        is_probe = request.method in ("GET", "HEAD") and request.scope["path"] in PROBES
        if is_probe or self._credentials.allow(request.headers.get("Authorization", "")):
            return await call_next(request)
        refused = answer(401, "credentials are needed: a bearer token, or user and password")
        refused.headers["WWW-Authenticate"] = 'Basic realm="sinksdk"'
        return refused
