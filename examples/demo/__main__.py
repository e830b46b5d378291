"""The demo, ``make demo``: real records, Spark, an S3 in this process, one interruption and one query."""

from __future__ import annotations

import tempfile
from pathlib import Path

import typer

from examples.demo.play import play
from sinksdk.cli.options import Verbose
from sinksdk.cli.output import command


@command
def demo(*, verbose: Verbose = False) -> None:
    """Archive 336,776 real records to an S3 in this process, interrupt it, check the archive, and query one.

    It takes under a minute and leaves nothing behind.
    """
    with tempfile.TemporaryDirectory(prefix="sinksdk-demo-") as folder:
        play(Path(folder), verbose=verbose)


if __name__ == "__main__":
    typer.run(demo)
