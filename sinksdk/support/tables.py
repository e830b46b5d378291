"""Small tables as text and HTML, for Python shells and notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

Row = Sequence[object]


def text_table(caption: str, headings: Sequence[str], rows: Sequence[Row]) -> str:
    cells = [[*headings], *([_cell(value) for value in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    right = [any(isinstance(row[number], int) for row in rows) for number in range(len(headings))]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in cells
    ]
    return "\n".join([caption, *(lines if rows else ())])


def html_table(caption: str, headings: Sequence[str], rows: Sequence[Row]) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(_cell(value))}</td>' for value in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    return f"<div><strong>{escape(caption)}</strong>{table}</div>"


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else str(value)
