"""``python -m sinksdk.connectors.s3_archiver verify CONFIG.json --store URL`` checks an archive."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TextIO

from sinksdk import ConfigException, ConnectException, committed_offsets, read_config_file
from sinksdk.connectors.s3_archiver.config import S3ArchiverConfig
from sinksdk.connectors.s3_archiver.s3.requests import Connect, connect
from sinksdk.connectors.s3_archiver.verify.check import PartitionReport, Report, verify
from sinksdk.connectors.s3_archiver.verify.compare import Original, TopicDirectory, compare

_OK: Final = 0
_PROBLEMS: Final = 1
_NOT_CHECKED: Final = 2
_OVERRIDES: Final = "consumer.override."


def main(arguments: Sequence[str] | None = None, *, connect: Connect = connect) -> int:
    given = _parser().parse_args(arguments)
    try:
        config = S3ArchiverConfig.parse(_load(given.config))
        s3 = connect(config)
        s3.head_bucket(config.s3_bucket_name)
        report = verify(config, s3, lambda: committed_offsets(given.store, config.name))
        if (original := _original(given, config)) is not None:
            compare(s3, original, report)
    except ConnectException as error:
        print(f"the archive could not be checked: {error}", file=sys.stderr)  # noqa: T201 - a command
        return _NOT_CHECKED
    show(report)
    return _PROBLEMS if report.problems else _OK


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sinksdk.connectors.s3_archiver", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser(
        "verify",
        help="read the archive and check it against the commits",
        description="Reads every archived file completely. Reports for each topic partition the first and "
        "last offset, records, files, gaps (offsets in no file) and overlaps (offsets in several files). "
        "Exit code 0: no problems, 1: problems, 2: the archive could not be checked.",
    )
    command.add_argument("config", type=Path, metavar="CONFIG.json", help="the connector's configuration")
    command.add_argument(
        "--store", required=True, metavar="URL", help="the connector's store, such as sqlite:///FILE"
    )
    source = command.add_mutually_exclusive_group()
    source.add_argument(
        "--topic-directory",
        dest="source_directory",
        type=Path,
        metavar="DIR",
        help="also compare each archived record with this topic directory",
    )
    source.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="also compare each archived record with the topics of this Kafka cluster",
    )
    command.add_argument(
        "--kafka-config", default="", metavar="FILE", help="Kafka client properties, as for sinksdk run"
    )
    return parser


def _original(given: argparse.Namespace, config: S3ArchiverConfig) -> Original | None:
    has_source = given.bootstrap_servers or given.source_directory
    if has_source and (config.is_transformed or config.transforms):
        raise ConfigException(
            "the archive holds the output of 'records.sql', 'records.transform' or 'transforms', so it "
            "cannot be compared with the topic: leave out --bootstrap-servers and --topic-directory"
        )
    if has_source and config.holds_values:
        raise ConfigException(
            "the archive holds values without their offsets, so it cannot be compared with the topic record "
            "by record: leave out --bootstrap-servers and --topic-directory"
        )
    if given.kafka_config and not given.bootstrap_servers:
        raise ConfigException("--kafka-config needs --bootstrap-servers")
    if given.bootstrap_servers:
        return _kafka(given.bootstrap_servers, given.kafka_config, config)
    return TopicDirectory(given.source_directory) if given.source_directory else None


def _kafka(bootstrap_servers: str, properties_file: str, config: S3ArchiverConfig) -> Original:
    try:
        from sinksdk.connectors.s3_archiver.verify.kafka_log import KafkaLog  # noqa: PLC0415 - an extra
        from sinksdk.topics.kafka import KafkaClient  # noqa: PLC0415 - the same
    except ImportError as error:
        raise ConfigException(
            f"Kafka's client is not installed ({error}): pip install 'sinksdk[kafka]'"
        ) from error
    client = KafkaClient(bootstrap_servers, properties_file)
    return KafkaLog(client.librdkafka(config.overrides(_OVERRIDES)))


def _load(path: Path) -> Mapping[str, str]:
    file = read_config_file(path)
    if file.problems:
        raise ConfigException(file.problems)
    return file.config


_HEADINGS: Final = (
    *("partition", "files", "records", "first", "last"),
    *("committed", "gaps", "overlaps", "bytes", ""),
)
_UNBOUNDED: Final = 1_000  # columns


def show(report: Report, out: TextIO | None = None) -> None:
    out = out or sys.stdout
    rows = [_row(partition) for partition in report.partitions]
    if len(rows) > 1:
        rows.append(_total(report))
    if not (out.isatty() and _show_table(rows, out)):
        _show_lines(rows, out)
    notes = report.notes + [note for partition in report.partitions for note in partition.notes]
    lines = [*(f"note: {note}" for note in notes), *(f"wrong: {problem}" for problem in report.problems)]
    print("\n".join([*lines, _verdict(report)]), file=out)


def _row(found: PartitionReport) -> tuple[str, ...]:
    return (
        str(found.partition),
        f"{found.files:,}",
        f"{found.records:,}",
        _number(found.first),
        _number(found.last),
        _number(found.committed),
        _number(found.gaps),
        f"{found.overlaps:,}",
        f"{found.size:,}",
        "WRONG" if found.problems else "ok",
    )


def _total(report: Report) -> tuple[str, ...]:
    parts = report.partitions
    return (
        "total",
        f"{sum(part.files for part in parts):,}",
        f"{sum(part.records for part in parts):,}",
        "",
        "",
        "",
        f"{sum(part.gaps or 0 for part in parts):,}",
        f"{sum(part.overlaps for part in parts):,}",
        f"{sum(part.size for part in parts):,}",
        "WRONG" if report.problems else "ok",
    )


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _verdict(report: Report) -> str:
    records = sum(part.records for part in report.partitions)
    files = sum(part.files for part in report.partitions)
    found = f"{records:,} records in {files:,} files of {len(report.partitions)} topic partitions"
    if report.problems:
        return f"{found}: {len(report.problems)} problems"
    return f"{found}: each offset once, nothing missing, nothing above the committed offsets"


def _show_table(rows: list[tuple[str, ...]], out: TextIO) -> bool:
    try:
        from rich import box  # noqa: PLC0415 - an extra
        from rich.console import Console  # noqa: PLC0415 - an extra
        from rich.table import Table  # noqa: PLC0415 - an extra
    except ImportError:
        return False
    table = Table(*_HEADINGS, box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in table.columns[1:-1]:
        column.justify = "right"
    for row in rows:
        style = "bold red" if row[-1] == "WRONG" else ("bold" if row[0] == "total" else "")
        table.add_row(*row, style=style)
    console = Console(file=out)
    unbounded = console.options.update(max_width=_UNBOUNDED)
    if console.measure(table, options=unbounded).maximum > console.width:
        return False
    console.print(table)
    return True


def _show_lines(rows: list[tuple[str, ...]], out: TextIO) -> None:
    widths = [max(map(len, column)) for column in zip(_HEADINGS, *rows, strict=True)]
    for row in (_HEADINGS, *rows):
        cells = [row[0].ljust(widths[0])] + [
            cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)
        ]
        print("  ".join([*cells, row[-1]]).rstrip(), file=out)


if __name__ == "__main__":
    sys.exit(main())
