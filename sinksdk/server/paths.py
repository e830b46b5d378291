"""Paths whose parts may hold anything: a connector may be called ``a/b``, which is ``/connectors/a%2Fb``."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from pydantic import AfterValidator
from starlette.types import ASGIApp, Receive, Scope, Send

from sinksdk.config import LONGEST_NAME
from sinksdk.server.errors import NotFoundException


class PathSegments:
    """Leaves ``%2F`` in a path as it is, where servers decode all of it, and takes a slash at its end away.

    As Connect does, ``/connectors/`` is ``/connectors``.

    Args:
        app: whose paths; its parameters are :data:`Name`.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See the class."""
        if scope["type"] == "http" and (raw := scope.get("raw_path")):
            scope = {**scope, "path": _with_segments(raw)}
        await self._app(scope, receive, send)


def _with_segments(raw: bytes) -> str:
    """The path decoded, but for slashes within its segments, and for percent signs: they tell these apart."""
    segments = (unquote(segment) for segment in raw.decode("latin-1").split("/"))
    path = "/".join(segment.replace("%", "%25").replace("/", "%2F") for segment in segments)
    return path.rstrip("/") or "/"


def path_of(connector: str) -> str:
    """Where a connector is."""
    return f"/connectors/{quote(connector, safe='')}"


def _meant(segment: str) -> str:
    name = unquote(segment)
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise NotFoundException(f"nothing has a name as long as '{name[:40]}…'")
    return name


Name = Annotated[str, AfterValidator(_meant)]
"""A name in a path."""
