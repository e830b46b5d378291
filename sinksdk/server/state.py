"""What requests share."""

from __future__ import annotations

from fastapi import Request

from sinksdk.control.herder import Herder
from sinksdk.control.source_offsets import SourceOffsets
from sinksdk.settings.references import ConfigProviders


def the_herder(request: Request) -> Herder:
    """The application's herder, for a request that depends on it."""
    herder = request.app.state.herder
    assert isinstance(herder, Herder)  # noqa: S101 - create_app has put it there
    return herder


def the_providers(request: Request) -> ConfigProviders:
    """What configurations may refer to that come over REST."""
    providers = request.app.state.providers
    assert isinstance(providers, ConfigProviders)  # noqa: S101 - create_app has put it there
    return providers


def the_source_offsets(request: Request) -> SourceOffsets:
    """The offsets of the store's sources."""
    offsets = request.app.state.source_offsets
    assert isinstance(offsets, SourceOffsets)  # noqa: S101 - create_app has put it there
    return offsets
