"""Progress on a terminal: one table that is drawn again and again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sinksdk.cli.board import Board, Row, Snapshot
from sinksdk.cli.formatting import counted, duration, number, size
from sinksdk.cli.task_tally import TaskTally, progress

_MOST_ROWS: Final = 20
_MOST_FAILURES: Final = 5
_WIDE: Final = 100  # columns from which on the table has more air
_PER_SECOND: Final = 4


class LiveProgress(Board):
    """A listener that shows a table while it is used as a context manager.

    Args:
        console: a terminal.
        connector: the connector's name.
    """

    def __init__(self, console: Console, connector: str) -> None:
        super().__init__()
        self._console = console
        self._connector = connector
        # What others write to stderr meanwhile, log lines of tasks above all, appears above the table.
        self._live = Live(
            console=console, refresh_per_second=_PER_SECOND, get_renderable=self._render, redirect_stderr=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        """A line above the table."""
        self._console.print(Text(text))

    def _render(self) -> RenderableType:
        return render(self._connector, self.snapshot(), self._console.width)


def render(connector: str, shown: Snapshot, width: int) -> RenderableType:
    """Headline, table and failures.

    Args:
        connector: the connector's name.
        shown: what to show.
        width: columns of the terminal.
    """
    parts = [connector, f"generation {shown.generation}"] if shown.generation else [connector]
    headline = Text(" · ".join([*parts, shown.state, duration(shown.seconds)]), style="bold")
    if shown.tally is not None:
        return Group(headline, Text(progress(shown.tally)), _task_table(shown.tally))
    if not shown.rows:
        return headline
    return Group(headline, _table(shown, width), *_failures(shown.rows))


def _table(shown: Snapshot, width: int) -> Table:
    """The partitions that lag most, in their usual order, and the total."""
    table = Table(box=None, padding=(0, 0, 0, 3 if width >= _WIDE else 2), pad_edge=False, header_style="dim")
    table.add_column("partition", overflow="ellipsis", no_wrap=True, min_width=9)
    for heading in ("read to", "committed", "end", "lag", "records/s", "files", "bytes"):
        table.add_column(heading, justify="right", no_wrap=True)
    lagging = sorted(shown.rows, key=lambda row: -row.lag)[:_MOST_ROWS]
    for row in sorted(lagging, key=shown.rows.index):
        table.add_row(*_cells(row), style="red" if row.failure else "")
    if len(shown.rows) > _MOST_ROWS:
        table.add_row(f"… and {len(shown.rows) - _MOST_ROWS} more", style="dim")
    if len(shown.rows) > 1:
        table.add_row(*_cells(shown.total), style="bold")
    return table


def _task_table(tally: TaskTally) -> Table:
    """A source's tasks."""
    table = Table(box=None, padding=(0, 0, 0, 2), pad_edge=False, header_style="dim")
    table.add_column("task", justify="right")
    table.add_column("state")
    for heading in ("records", "transactions", "records/s"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("failed with", overflow="fold")
    for task in tally.tasks[:_MOST_ROWS]:
        cells = number(task.records), number(task.transactions), number(task.rate), task.failure or ""
        table.add_row(str(task.task), task.state, *cells, style="red" if task.failure else "")
    return table


def _cells(row: Row) -> Iterator[str]:
    yield row.name
    yield number(row.position)
    yield number(row.committed)
    yield number(row.end)
    yield number(row.lag)
    yield number(row.rate)
    yield number(row.files)
    yield size(row.size)


def _failures(rows: Sequence[Row]) -> Iterator[Text]:
    failed = [row for row in rows if row.failure]
    for row in failed[:_MOST_FAILURES]:
        yield Text(f"{row.name}: {row.failure}", style="red")
    if len(failed) > _MOST_FAILURES:
        yield Text(f"and {counted(len(failed) - _MOST_FAILURES, 'more failed partition')}", style="red")
