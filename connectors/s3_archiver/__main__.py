"""``python -m sinksdk.connectors.s3_archiver verify CONFIG.json --store URL``: is the archive whole?"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sinksdk import ConfigException, ConnectException, committed_offsets, read_config_file
from sinksdk.connectors.s3_archiver.client import Connect
from sinksdk.connectors.s3_archiver.compare import Original, compare
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.connecting import connect
from sinksdk.connectors.s3_archiver.report import show
from sinksdk.connectors.s3_archiver.topic_directory import TopicDirectory
from sinksdk.connectors.s3_archiver.verify import verify

_WHOLE: Final = 0
_WRONG: Final = 1
_CANNOT_TELL: Final = 2
_OVERRIDES: Final = "consumer.override."


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
        if (original := _original(asked, config)) is not None:
            compare(config, s3, original, report)
    except ConnectException as error:
        print(f"the archive could not be checked: {error}", file=sys.stderr)  # noqa: T201 - a command
        return _CANNOT_TELL
    show(report)
    return _WRONG if report.problems else _WHOLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sinksdk.connectors.s3_archiver", description=__doc__)
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
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--source-directory",
        type=Path,
        metavar="DIR",
        help="compare each archived record with this topic directory too",
    )
    source.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="compare each archived record with the topics of this Kafka cluster too",
    )
    command.add_argument(
        "--kafka-config", default="", metavar="FILE", help="properties of Kafka clients, as for sinksdk run"
    )
    return parser


def _original(asked: argparse.Namespace, config: S3ArchiverConfig) -> Original | None:
    """What to compare with, if anything."""
    if asked.kafka_config and not asked.bootstrap_servers:
        message = "--kafka-config goes with --bootstrap-servers"
        raise ConfigException(message)
    if asked.bootstrap_servers:
        return _kafka(asked.bootstrap_servers, asked.kafka_config, config)
    return TopicDirectory(asked.source_directory) if asked.source_directory else None


def _kafka(bootstrap_servers: str, properties_file: str, config: S3ArchiverConfig) -> Original:
    try:
        from sinksdk.connectors.s3_archiver.kafka_log import KafkaLog  # noqa: PLC0415 - an extra
        from sinksdk.topics.kafka import KafkaClient  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigException(
            f"Kafka needs a further package ({error}): pip install 'sinksdk[kafka]'"
        ) from error
    client = KafkaClient(bootstrap_servers, properties_file)
    return KafkaLog(client.librdkafka(config.overrides(_OVERRIDES)))


def _load(path: Path) -> Mapping[str, str]:
    """A configuration in any of the forms that ``sinksdk run`` takes."""
    file = read_config_file(path)
    if file.problems:
        raise ConfigException(file.problems)
    return file.config


if __name__ == "__main__":
    sys.exit(main())
