"""Showing what ``verify`` found: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from sinksdk.connectors.s3_archiver.verify import PartitionReport, Report

_HEADINGS = (
    "partition",
    "files",
    "records",
    "first",
    "last",
    "committed",
    "gaps",
    "overlaps",
    "bytes",
    "",
)


_UNBOUNDED = 1_000


def show(report: Report, out: TextIO | None = None) -> None:
    """Print the report, to standard output if nothing else is given."""
    out = out or sys.stdout
    rows = [_row(partition) for partition in report.partitions]
    if len(rows) > 1:
        rows.append(_total(report))
    if not (out.isatty() and _show_table(rows, out)):
        _show_lines(rows, out)
    notes = report.notes + [note for partition in report.partitions for note in partition.notes]
    for note in notes:
        print(f"note: {note}", file=out)
    for problem in report.problems:
        print(f"wrong: {problem}", file=out)
    print(_verdict(report), file=out)


def _row(found: PartitionReport) -> tuple[str, ...]:
    return (
        str(found.partition),
        f"{found.files:,}",
        f"{found.records:,}",
        _number(found.first),
        _number(found.last),
        _number(found.committed),
        f"{found.gaps:,}",
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
        f"{sum(part.gaps for part in parts):,}",
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
    return f"{found}: each offset once, nothing missing, nothing above the commits"


def _show_table(rows: list[tuple[str, ...]], out: TextIO) -> bool:
    """False where rich is not installed, or the terminal too narrow."""
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
