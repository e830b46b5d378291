"""The command line; ``sinksdk --help`` lists its commands."""

from __future__ import annotations

import sys

_PACKAGES = ("typer", "rich")


def main() -> None:
    try:
        from sinksdk.cli.app import app  # noqa: PLC0415 - says what to install where its packages are not
    except ModuleNotFoundError as error:
        if error.name not in _PACKAGES:
            raise
        sys.exit(f"the command line needs the package '{error.name}': pip install 'sinksdk[cli,spark]'")
    app()
