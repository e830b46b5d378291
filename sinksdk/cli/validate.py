"""``sinksdk validate``: what is wrong with a configuration, all of it, without starting anything."""

from __future__ import annotations

from pathlib import Path

import typer

from sinksdk.cli.checks import check_file
from sinksdk.cli.exit_codes import ExitCode
from sinksdk.cli.formatting import counted
from sinksdk.cli.output import stdout, write, write_list


def validate(config: Path) -> None:
    """Check a configuration file and say everything that is to be said of it.

    Raises:
        ConfigException: there is no configuration to check: file missing, no JSON.
        typer.Exit: with ``BAD_CONFIG`` when it has problems.
    """
    checked = check_file(config)
    console = stdout()
    name = checked.raw.get("connector.class", "")
    write(
        console, f"{config}: {checked.name or 'a connector without a name'} ({name or 'no connector.class'})"
    )
    if checked.problems:
        write(console, counted(len(checked.problems), "problem"), "bold red")
        write_list(console, checked.problems, "red")
    if checked.warnings:
        write(console, counted(len(checked.warnings), "warning"), "bold yellow")
        write_list(console, checked.warnings, "yellow")
    if checked.without_effect:
        write(console, f"{counted(len(checked.without_effect), 'key')} without effect here", "bold")
        write_list(
            console, [f"'{key}' has no effect here: {why}" for key, why in checked.without_effect.items()]
        )
    if checked.problems:
        raise typer.Exit(ExitCode.BAD_CONFIG)
    write(console, "it would start", "bold green")
