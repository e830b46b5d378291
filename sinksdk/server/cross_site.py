"""Pages of other sites must not change anything here through the browser of somebody who may."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from starlette.middleware.base import BaseHTTPMiddleware, RequestResponseEndpoint
from starlette.requests import Request
from starlette.responses import Response

from sinksdk.server.errors import answer

_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class CrossSiteProtection(BaseHTTPMiddleware):
    """Answers 403 to a change that a browser asks for on behalf of another site's page.

    A browser sends the credentials it has to whoever a page names; and who listens at loopback without
    credentials trusts everybody there, the browser included. Only browsers send these headers: other clients
    are not concerned.
    """

    async def dispatch(self, request: Request, call_next: RequestResponseEndpoint) -> Response:
        """See the class."""
        if request.method in _READING or _is_own(request):
            return await call_next(request)
        return answer(403, f"{request.method} {request.url.path} was asked for by a page of another site")


def _is_own(request: Request) -> bool:
    site = request.headers.get("Sec-Fetch-Site")
    if site is not None:
        return site in ("same-origin", "none")
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.headers.get("Host")
