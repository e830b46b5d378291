"""Print all measurements in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One measurement.

    Args:
        against: the ratio to another figure of the same run.
        target: the bound to reach, or empty.
    """

    what: str
    measured: str
    against: str = ""
    target: str = ""
    is_met: bool = True

    @classmethod
    def ratio(
        cls, what: str, measured: str, ratio: float, *, least: float | None = None, most: float | None = None
    ) -> Self:
        bound = least if least is not None else most
        sign = "≥" if least is not None else "≤"
        is_met = ratio >= bound if least is not None else ratio <= bound if bound is not None else True
        return cls(what, measured, f"{ratio:.2f} x", f"{sign} {bound:g} x" if bound else "", is_met)

    @classmethod
    def limit(cls, what: str, measured: str, *, is_met: bool, target: str) -> Self:
        return cls(what, measured, "", f"≤ {target}", is_met)


def show(rows: Sequence[Row]) -> None:
    table = Table(title="sinksdk: medians of one run", title_justify="left")
    for name in ("what", "measured", "ratio", "target", ""):
        table.add_column(name, justify="left" if name == "what" else "right", overflow="fold")
    for row in rows:
        mark = "" if not row.target else "met" if row.is_met else "missed"
        table.add_row(row.what, row.measured, row.against, row.target, mark)
    Console(width=140).print(table)
