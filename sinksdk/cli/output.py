"""Writing to the terminal: text wraps on a terminal and stays on one line elsewhere."""

from __future__ import annotations

import functools
import json
import traceback
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import IntEnum
from typing import Any, Final, ParamSpec

import typer
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from sinksdk.errors import ConfigException, ConnectException, FencedException, MissingSourceTopicException
from sinksdk.store import StoreUnreadable
from sinksdk.support.confidential import SECRETS

P = ParamSpec("P")

_NAME_COLUMNS: Final = 36  # with this width a table of names fits into 80 columns; longer names wrap

_WHOLE_LINES: Final = 10_000  # columns: more than any line has
_STEP: Final = 1000
_TENTHS_BELOW: Final = 100
_SECONDS_BELOW: Final = 120


class ExitCode(IntEnum):
    """Exit codes of all commands. A second signal ends the process with 128 + its number instead."""

    DONE = 0
    """The command succeeded, or the connector was stopped and its partial batches are committed."""
    FAILED = 1
    """A permanent failure; committed records stay committed."""
    BAD_CONFIG = 2
    """The configuration, the command line or the store is invalid; a restart does not help."""
    FENCED = 3
    """A newer driver of the same connector has taken over."""
    MISSING_TOPIC = 4
    """The source does not have a subscribed topic."""


def exit_code_of(error: BaseException) -> ExitCode:
    match error:
        case ConfigException() | StoreUnreadable():
            return ExitCode.BAD_CONFIG
        case FencedException():
            return ExitCode.FENCED
        case MissingSourceTopicException():
            return ExitCode.MISSING_TOPIC
        case _:
            return ExitCode.FAILED


def stdout() -> Console:
    return Console(highlight=False)


def stderr() -> Console:
    return Console(stderr=True, highlight=False)


def write(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style=style), soft_wrap=not console.is_terminal)


def write_list(console: Console, items: Sequence[str], style: str = "") -> None:
    for item in items:
        if not console.is_terminal:
            console.print(Text(f"  - {item}"), soft_wrap=True)
            continue
        grid = Table.grid(padding=(0, 1))
        grid.add_row(Text("•", style=style), Text(item))
        console.print(Padding(grid, (0, 0, 0, 2), expand=False))


def write_pairs(console: Console, rows: Sequence[tuple[str, str]]) -> None:
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
    made = Table(box=None, pad_edge=False, header_style="dim")
    for at, column in enumerate(columns):
        made.add_column(column, justify="right" if at >= len(columns) - right else "left", overflow="fold")
    return made


def add_row(rows: Table, *cells: str, style: str = "") -> None:
    rows.add_row(*map(Text, cells), style=style)


def write_table(console: Console, rows: Table) -> None:
    if not console.is_terminal:
        console.width = max(console.width, _WHOLE_LINES)
    console.print(rows)


def print_json(value: Any) -> None:
    stdout().print_json(json.dumps(value))


def write_result(text: str, value: Any, *, as_json: bool) -> None:
    if as_json:
        print_json(value)
    else:
        write(stdout(), text)


def warn(text: str) -> None:
    write(stderr(), f"warning: {text}", "yellow")


def command(function: Callable[P, None]) -> Callable[P, None]:
    """Make a function a command: an error ends the process with its exit code."""

    @functools.wraps(function)
    def run(*args: P.args, **options: P.kwargs) -> None:
        try:
            function(*args, **options)
        except typer.Exit:
            raise
        except Exception as error:
            show_error(error, verbose=bool(options["verbose"]))
            raise typer.Exit(exit_code_of(error)) from error

    return run


def show_error(error: Exception, *, verbose: bool) -> None:
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
    text = str(error) or type(error).__name__
    # The texts of other libraries' errors often mean little without their class.
    return text if isinstance(error, ConnectException) else f"{type(error).__name__}: {text}"


# -- numbers as people read them ---------------------------------------------------------------------


def number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def size(value: float | None) -> str:
    if value is None:
        return "–"
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if value < _STEP or unit == "TB":
            break
        value /= _STEP
    digits = 1 if unit != "B" and value < _TENTHS_BELOW else 0
    return f"{value:,.{digits}f} {unit}"


def duration(seconds: float) -> str:
    if seconds < _SECONDS_BELOW:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02} h" if hours else f"{minutes}:{rest:02} min"


def moment(seconds: float | None) -> str:
    return "–" if seconds is None else f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M:%S}"


def counted(value: int, noun: str) -> str:
    return f"{value:,} {noun}" + ("" if value == 1 else "s")
