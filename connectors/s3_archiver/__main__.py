"""``python -m connectors.s3_archiver verify CONFIG.json --store URL``: is the archive whole?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from connectors.s3_archiver.client import Connect, connect
from connectors.s3_archiver.compare import compare
from connectors.s3_archiver.config import S3ArchiverConfig
from connectors.s3_archiver.report import show
from connectors.s3_archiver.verify import verify
from sinksdk import ConfigException, ConnectException, committed_offsets, read_config_file

_WHOLE: Final = 0
_WRONG: Final = 1
_CANNOT_TELL: Final = 2


def main(arguments: Sequence[str] | None = None, *, connect: Connect = connect) -> int:
    """Run the command.

    Returns:
        0: the archive is whole; 1: something is wrong with it; 2: it could not be checked.
    """
    asked = _parser().parse_args(arguments)
    try:
        config = S3ArchiverConfig.parse(_load(asked.config))
        s3 = connect(config)
        s3.head_bucket(config.s3_bucket_name)
        report = verify(config, s3, lambda: committed_offsets(asked.store, config.name))
        if asked.source_directory:
            compare(config, s3, asked.source_directory, report)
    except ConnectException as error:
        print(f"the archive could not be checked: {error}", file=sys.stderr)  # noqa: T201 - a command
        return _CANNOT_TELL
    show(report)
    return _WRONG if report.problems else _WHOLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m connectors.s3_archiver", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "verify",
        help="read the archive back and check it against what is committed",
        description="Reads every archived file to its end. Per topic partition: first and last offset, "
        "records, files, offsets that no file holds, offsets that several hold. Exit code 0: whole, "
        "1: something is wrong, 2: it could not be checked.",
    )
    command.add_argument("config", type=Path, metavar="CONFIG.json", help="the connector's configuration")
    command.add_argument("--store", required=True, metavar="URL", help="its store, as in sqlite:///FILE")
    command.add_argument(
        "--source-directory",
        type=Path,
        metavar="DIR",
        help="compare each archived record with this topic directory too",
    )
    return parser


def _load(path: Path) -> Mapping[str, str]:
    """A configuration in any of the forms that ``sinksdk run`` takes."""
    file = read_config_file(path)
    if file.problems:
        raise ConfigException(file.problems)
    return file.config


if __name__ == "__main__":
    sys.exit(main())
