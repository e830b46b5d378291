"""Parameters of requests: names in paths, and what all requests share."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import Depends, Request
from pydantic import AfterValidator

from sinksdk.config import LONGEST_NAME
from sinksdk.control.herder import Herder
from sinksdk.control.source_offsets import SourceOffsets
from sinksdk.server.errors import NotFoundException
from sinksdk.settings.references import ConfigProviders


def path_of(connector: str) -> str:
    """Where a connector is; it may be called ``a/b``, which is ``/connectors/a%2Fb``."""
    return f"/connectors/{quote(connector, safe='')}"


def _meant(segment: str) -> str:
    name = unquote(segment)
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise NotFoundException(f"nothing has a name as long as '{name[:40]}…'")
    return name


Name = Annotated[str, AfterValidator(_meant)]
"""A name in a path, in which the middleware leaves ``%2F`` as it is."""


def _of_the_app(name: str) -> Any:
    """What ``create_app`` has put into the application's state."""

    def value(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(value)


TheHerder = Annotated[Herder, _of_the_app("herder")]
TheProviders = Annotated[ConfigProviders, _of_the_app("providers")]
"""What configurations may refer to that come over REST."""
TheSourceOffsets = Annotated[SourceOffsets, _of_the_app("source_offsets")]
