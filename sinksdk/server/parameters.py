"""Parameters of requests: names in paths, and what all requests share."""

from __future__ import annotations

from typing import Annotated
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


def _herder(request: Request) -> Herder:
    herder = request.app.state.herder
    assert isinstance(herder, Herder)  # noqa: S101 - create_app has put it there
    return herder


def _providers(request: Request) -> ConfigProviders:
    providers = request.app.state.providers
    assert isinstance(providers, ConfigProviders)  # noqa: S101 - create_app has put it there
    return providers


def _source_offsets(request: Request) -> SourceOffsets:
    offsets = request.app.state.source_offsets
    assert isinstance(offsets, SourceOffsets)  # noqa: S101 - create_app has put it there
    return offsets


TheHerder = Annotated[Herder, Depends(_herder)]
TheProviders = Annotated[ConfigProviders, Depends(_providers)]
"""What configurations may refer to that come over REST."""
TheSourceOffsets = Annotated[SourceOffsets, Depends(_source_offsets)]
