"""``/ui``: the status page. Files that come with this package; they ask this server for everything else."""

from __future__ import annotations

from importlib.resources import files
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from sinksdk.server.errors import NotFoundException

_TYPES: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}

_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
"""A page that could be made to run something else, or to ask somebody else, would do it as its reader."""


def page_router() -> APIRouter:
    """The status page and what it consists of; read once."""
    folder = files("sinksdk.server") / "ui"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    router = APIRouter(include_in_schema=False)

    @router.get("/ui")
    def page(request: Request) -> Response:
        # Its files have relative addresses, since a proxy may have put the server below a path of its own: so
        # the slash matters here, and elsewhere it does not.
        if not request.scope["raw_path"].endswith(b"/"):
            return RedirectResponse("ui/", status_code=307)
        return file("index.html")

    @router.get("/ui/{name}")
    def file(name: str) -> Response:
        suffix = name[name.rfind(".") :]
        if name not in found or suffix not in _TYPES:
            raise NotFoundException(f"the status page has no file '{name}'")
        return Response(found[name], media_type=_TYPES[suffix], headers=_HEADERS)

    return router
