"""``sinksdk validate``: checks a configuration without starting anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import typer
from rich.console import Console

from sinksdk.cli.options import AsJson, Config, Verbose
from sinksdk.cli.output import ExitCode, command, counted, print_json, stdout, write, write_list, write_pairs
from sinksdk.compatibility import Meaning
from sinksdk.plugins.checks import Checked, check_file

# The order of output: first the keys that the user must change.
_TITLES: Final[Mapping[Meaning, tuple[str, str]]] = {
    Meaning.UNSUPPORTED: ("unsupported: refused; what to do instead", "bold red"),
    Meaning.UNKNOWN: ("unknown: no effect, perhaps misspelt", "bold yellow"),
    Meaning.DIFFERS: ("differs: applied, but not entirely as in Kafka Connect", "bold yellow"),
    Meaning.IGNORED: ("ignored: no effect here, and why", "bold"),
    Meaning.OWN: ("own: a key that Kafka Connect does not have", "bold"),
    Meaning.SAME: ("same: means what it means in Kafka Connect", "bold"),
}


@command
def validate(*, config: Config, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """Check a configuration: list the effect of each key, and every problem at once.

    A key means the same as in Kafka Connect, differs, is ignored, or is unsupported (then the connector would
    not start); the output gives the reason, or what to do instead. Nothing is started or connected to: the
    query of records.sql or records.transform is checked when Spark starts. Exit codes: 0 the connector would
    start, at least with a DataFrame's records, 2 it would not.
    """
    checked = check_file(config)
    console = stdout()
    if as_json:
        print_json(_document(config, checked))
    else:
        _show(console, config, checked)
    if not checked.is_startable:
        raise typer.Exit(ExitCode.BAD_CONFIG)


def _document(config: Path, checked: Checked) -> dict[str, Any]:
    return {
        "file": str(config),
        "name": checked.name,
        "connector.class": checked.raw.get("connector.class", ""),
        "would_start": checked.is_startable,
        "options": [
            {"key": key, "verdict": verdict.meaning, "why": verdict.why} for key, verdict in checked.options
        ],
        "notes": dict(checked.notes),
        "problems": list(checked.problems),
        "unmet": list(checked.unmet),
        "warnings": list(checked.warnings),
        "unchecked": list(checked.unchecked),
    }


def _show(console: Console, config: Path, checked: Checked) -> None:
    name = checked.raw.get("connector.class", "")
    write(
        console, f"{config}: {checked.name or 'a connector without a name'} ({name or 'no connector.class'})"
    )
    for meaning, (title, style) in _TITLES.items():
        if found := checked.having(meaning):
            _group(console, title, style, [(option.key, option.verdict.why) for option in found])
    if checked.notes:
        _group(
            console, "not set: the default differs from Kafka Connect's", "bold", list(checked.notes.items())
        )
    if checked.other_problems:
        console.print()
        write(console, counted(len(checked.other_problems), "problem"), "bold red")
        write_list(console, checked.other_problems, "red")
    if checked.warnings:
        console.print()
        write(console, counted(len(checked.warnings), "warning"), "bold yellow")
        write_list(console, checked.warnings, "yellow")
    if checked.unmet:
        console.print()
        write(console, "refused by 'sinksdk run' and the server", "bold yellow")
        write_list(console, checked.unmet, "yellow")
    console.print()
    if checked.unmet:
        write(
            console,
            "it would start only with a DataFrame's records: 'sinksdk run' refuses it, because no record of "
            "Kafka could be delivered",
            "bold yellow",
        )
    elif checked.is_startable:
        write(console, "it would start", "bold green")
        for key in checked.unchecked:
            write(
                console,
                f"not checked here: '{key}', which Spark checks when the connector starts",
                "bold yellow",
            )
    else:
        write(console, f"it would not start: {', '.join(_reasons(checked))}", "bold red")


def _group(console: Console, title: str, style: str, rows: Sequence[tuple[str, str]]) -> None:
    console.print()
    write(console, title, style)
    write_pairs(console, rows)


def _reasons(checked: Checked) -> Iterator[str]:
    if unsupported := checked.having(Meaning.UNSUPPORTED):
        yield f"{counted(len(unsupported), 'key')} unsupported"
    if others := checked.other_problems:
        yield counted(len(others), "problem") if not unsupported else counted(len(others), "other problem")
