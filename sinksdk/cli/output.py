"""Writing to the terminal: messages a person reads, wrapped on a terminal and whole lines elsewhere.

``NO_COLOR`` and ``TERM=dumb`` are honoured (rich sees to it).
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sinksdk.cli.exit_codes import ExitCode, exit_code_of
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.support.confidential import SECRETS

_NAME_COLUMNS: Final = 36
"""Width of a column of names, at most: longer ones go on below, so that 80 columns suffice."""

_WHOLE_LINES: Final = 10_000  # columns: no line is longer that somebody would want whole


def stdout() -> Console:
    """Where results go."""
    return Console(highlight=False)


def stderr() -> Console:
    """Where warnings and errors go."""
    return Console(stderr=True, highlight=False)


def write(console: Console, text: str, style: str = "") -> None:
    """One paragraph: wrapped by words on a terminal, one line elsewhere, nothing in it interpreted."""
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def write_list(console: Console, items: Sequence[str], style: str = "") -> None:
    """Paragraphs with bullets, indented below them on a terminal."""
    for item in items:
        if not console.is_terminal:
            console.print(Text(f"  - {item}"), soft_wrap=True)
            continue
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("•", style=style), Text(item))
        console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def write_pairs(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    """Names with what is to be said of each: two columns, of which a terminal wraps the second."""
    width = min(max(len(name) for name, _ in rows), _NAME_COLUMNS)
    if not console.is_terminal:
        for name, text in rows:
            console.print(Text(f"  {name:<{width}}  {text}".rstrip()), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(width=width, overflow="fold")
    grid.add_column()
    for name, text in rows:
        grid.add_row(Text(name, style="cyan"), Text(text))
    console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def table(*columns: str, right: int = 0) -> Table:
    """A table whose last columns are numbers."""
    made = Table(box=None, pad_edge=False, header_style="dim")
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at >= len(columns) - right else "left", overflow="fold")
    return made


def add_row(rows: Table, *cells: str, style: str = "") -> None:
    """A line of a table, nothing in it interpreted."""
    rows.add_row(*map(Text, cells), style=style)


def write_table(console: Console, rows: Table) -> None:
    """A table: cells folded to the width of a terminal, whole lines elsewhere."""
    if not console.is_terminal:
        console.width = max(console.width, _WHOLE_LINES)
    console.print(rows)


def print_json(value: Any) -> None:
    """A result for programs."""
    stdout().print_json(json.dumps(value))


def tell(text: str, value: Any, *, as_json: bool) -> None:
    """A line for people, or what it says for programs."""
    if as_json:
        print_json(value)
    else:
        write(stdout(), text)


def warn(texts: Sequence[str]) -> None:
    """What should be looked at and keeps nothing from starting."""
    console = stderr()
    for text in texts:
        write(console, f"warning: {text}", "yellow")


@contextmanager
def exit_on_error(*, verbose: bool) -> Iterator[None]:
    """End the process with the error's exit code and one block that says what happened.

    Args:
        verbose: show stack traces too, also those of tasks.
    """
    try:
        yield
    except typer.Exit:
        raise
    except Exception as error:
        show_error(error, verbose=verbose)
        raise typer.Exit(exit_code_of(error)) from error


def show_error(error: Exception, *, verbose: bool) -> None:
    """One block on stderr."""
    console = stderr()
    if isinstance(error, ConfigException) and len(error.problems) != 1:
        write(console, f"error: {len(error.problems)} problems, nothing was started", "bold red")
        write_list(console, [SECRETS.hide(problem) for problem in error.problems], "red")
    else:
        write(console, f"error: {SECRETS.hide(_sentence(error))}", "bold red")
    if verbose:
        write(console, SECRETS.hide("".join(traceback.format_exception(error)).rstrip()), "dim")
    elif exit_code_of(error) is ExitCode.FAILED:
        write(console, "(--verbose shows stack traces)", "dim")


def _sentence(error: Exception) -> str:
    """What it says; errors that are not ours also say what they are."""
    text = str(error) or type(error).__name__
    return text if isinstance(error, ConnectException) else f"{type(error).__name__}: {text}"
