"""Keeps the pages that a browser shows from using a server that listens on its machine.

Such a page may send requests to 127.0.0.1 without being asked: a POST to another site without any check
beforehand, and every request once its own name leads to 127.0.0.1 (DNS rebinding). The browser tells on it:
the one comes with the page's ``Origin``, the other with its name as ``Host``.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from sinksdk.server.errors import answer

_WITH_BODIES: Final = ("POST", "PUT", "PATCH")


class Guard:
    """Refuses what another site's page has sent (403), and bodies that do not say they are JSON (415).

    Args:
        app: what is guarded.
        hosts: names besides ``localhost`` and addresses by which the server may be asked for; None: any.
            (An address cannot be made to lead elsewhere, a name can.)
    """

    def __init__(self, app: ASGIApp, hosts: Collection[str] | None = None) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
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
