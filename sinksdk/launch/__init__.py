"""Starts connectors from their configurations, for ``sinksdk.run``, the commands and the server."""

from __future__ import annotations
