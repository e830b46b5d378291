"""Path parameters, and dependencies that all requests share."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, unquote

from fastapi import Depends, Request
from pydantic import AfterValidator

from sinksdk.config import LONGEST_NAME
from sinksdk.control.herder import Herder
from sinksdk.control.offsets import SourceOffsets
from sinksdk.server.errors import NotFoundException
from sinksdk.settings.references import ConfigProviders


def path_of(connector: str) -> str:
    return f"/connectors/{quote(connector, safe='')}"


def _decode_name(segment: str) -> str:
    # The middleware keeps %2F encoded.
    name = unquote(segment)
    if len(quote(name, safe="", errors="replace")) > LONGEST_NAME:
        raise NotFoundException(f"the name '{name[:40]}…' does not exist: it is longer than any valid name")
    return name


Name = Annotated[str, AfterValidator(_decode_name)]


def _from_app_state(name: str) -> Any:
    def value(request: Request) -> Any:
        return getattr(request.app.state, name)

    return Depends(value)


TheHerder = Annotated[Herder, _from_app_state("herder")]
TheProviders = Annotated[ConfigProviders, _from_app_state("providers")]
TheSourceOffsets = Annotated[SourceOffsets, _from_app_state("source_offsets")]
