"""``sinksdk convert``: translates a Kafka Connect configuration."""

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
        help="Properties of Connect's worker: its converters apply where the connector configures none.",
    ),
]


@command
def convert(*, config: Config, worker: Worker = None, verbose: Verbose = False) -> None:
    """Translate a Kafka Connect configuration into sinksdk's, as JSON.

    Renames keys, among them those of Aiven's and Lenses' S3 connectors, and leaves out keys without effect.
    Notes and problems go to stderr. Secrets are printed as they are in the file. Nothing is started or
    connected to. Exit codes: 0 the configuration can be run (notes name missing settings of the worker), 2 it
    cannot be run, or would write other data: complete it by hand.
    """
    file = read_config(config)
    raw = {**_converters_of(worker, file.config), **file.config}
    name = raw.get("connector.class", "")
    translated = load_class(name).config_class.converted(raw)
    translated.config["connector.class"] = DROP_IN_NAMES.get(name, name)
    print_json(translated.config)
    problems, notes = [*file.problems, *translated.problems], [*file.warnings, *translated.notes]
    checked = check_config(translated.config)
    problems += [text for text in checked.problems if text not in problems]
    # A missing worker key is only a note: the worker's file, which may set it, is not always given.
    notes += [text for text in dict.fromkeys((*checked.unmet, *checked.warnings)) if text not in notes]
    _write_section("notes", notes, "bold")
    _write_section("problems", problems, "bold red")
    if problems:
        raise typer.Exit(ExitCode.BAD_CONFIG)


def _converters_of(worker: Path | None, config: Mapping[str, str]) -> Mapping[str, str]:
    if worker is None:
        return {}
    found = read_config_file(worker).config
    missing = [side for side in _CONVERTERS if side not in config]
    return {
        key: text
        for key, text in found.items()
        if any(key == side or key.startswith(f"{side}.") for side in missing)
    }


def _write_section(title: str, sentences: Sequence[str], style: str) -> None:
    if sentences:
        write(stderr(), title, style)
        write_list(stderr(), sentences)
