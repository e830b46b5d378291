"""``sinksdk convert``: a configuration of Kafka Connect, with the keys it has here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from sinksdk.cli.options import Config, Verbose
from sinksdk.cli.output import ExitCode, command, print_json, stderr, write, write_list
from sinksdk.plugins.checks import check_config, load_class
from sinksdk.plugins.classes import DROP_IN_NAMES
from sinksdk.settings.file import read_config, read_config_file

_CONVERTERS: Final = ("key.converter", "value.converter")

Worker = Annotated[
    Path | None,
    typer.Option(
        "--worker",
        metavar="FILE",
        help="The properties of Connect's worker, whose converters a connector has that names none.",
    ),
]


@command
def convert(*, config: Config, worker: Worker = None, verbose: Verbose = False) -> None:
    """Print a configuration of Kafka Connect as it is to be here, as JSON.

    Keys that are called otherwise get their names, also Aiven's and Lenses' for S3; keys without an effect
    are left out. Notes and problems go to stderr. Secrets are printed as they are written. Nothing is started
    or connected to. Exit codes: 0 it can be run, with what notes
    say of the worker's converters, 2 it cannot, or not with the same data: what is printed is
    to be completed by hand.
    """
    file = read_config(config)
    raw = {**_converters_of(worker, file.config), **file.config}
    name = raw.get("connector.class", "")
    made = load_class(name).config_class.converted(raw)
    made.config["connector.class"] = DROP_IN_NAMES.get(name, name)
    print_json(made.config)
    problems, notes = [*file.problems, *made.problems], [*file.warnings, *made.notes]
    checked = check_config(made.config)
    problems += [one for one in checked.problems if one not in problems]
    # The worker may have named what is missing: its file is not always given.
    notes += [one for one in dict.fromkeys((*checked.unmet, *checked.warnings)) if one not in notes]
    _say("notes", notes, "bold")
    _say("problems", problems, "bold red")
    if problems:
        raise typer.Exit(ExitCode.BAD_CONFIG)


def _converters_of(worker: Path | None, config: Mapping[str, str]) -> Mapping[str, str]:
    """The worker's converters that the connector does not name itself."""
    if worker is None:
        return {}
    found = read_config_file(worker).config
    missing = [side for side in _CONVERTERS if side not in config]
    return {
        key: text
        for key, text in found.items()
        if any(key == side or key.startswith(f"{side}.") for side in missing)
    }


def _say(title: str, sentences: Sequence[str], style: str) -> None:
    if sentences:
        write(stderr(), title, style)
        write_list(stderr(), sentences)
