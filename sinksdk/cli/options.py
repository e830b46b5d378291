"""Options that many commands have."""

from __future__ import annotations

from typing import Annotated

import typer

DEFAULT_STORE = "sqlite:///sinksdk.sqlite"
"""One store for all connectors that are run from the same folder."""

Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show log lines and stack traces.")]
