"""``sinksdk plugins``: lists installed connectors with their configuration reference."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Sequence
from importlib.metadata import EntryPoint
from typing import Annotated, Any, NamedTuple

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from sinksdk.cli.options import AsJson, Verbose
from sinksdk.cli.output import command, print_json, stdout, warn, write
from sinksdk.compatibility import Meaning
from sinksdk.config import ConfigKey
from sinksdk.connector import SinkConnector
from sinksdk.errors import ConfigException
from sinksdk.plugins.checks import load_class
from sinksdk.plugins.classes import GROUP, plugins
from sinksdk.source.connector import SourceConnector


class Listed(NamedTuple):
    plugin: EntryPoint
    connector: type[SinkConnector | SourceConnector]

    @property
    def description(self) -> str:
        return " ".join(inspect.cleandoc(self.connector.__doc__ or "").partition("\n\n")[0].split())

    @property
    def keys(self) -> Sequence[ConfigKey]:
        return list(self.connector.config_class.reference())

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.plugin.name,
            "target": self.plugin.value,
            "description": self.description,
            "keys": [key.model_dump() for key in self.keys],
            "compatibility": {
                key: dataclasses.asdict(verdict)
                for key, verdict in self.connector.config_class.compatibility.items()
            },
        }


@command
def show_plugins(
    *,
    name: Annotated[
        str | None, typer.Argument(help="Show only this connector: a value of connector.class.")
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List connectors with their configuration reference."""
    found = [Listed(EntryPoint(name, _target(name), GROUP), load_class(name))] if name else _installed()
    console = stdout()
    if as_json:
        print_json([listed.as_json() for listed in found])
        return
    if not found:
        write(console, "no connectors are installed")
    for listed in found:
        _show(console, listed)


def _target(name: str) -> str:
    return next((plugin.value for plugin in plugins() if plugin.name == name), name)


def _installed() -> list[Listed]:
    found = []
    for plugin in plugins():
        try:
            found.append(Listed(plugin, load_class(plugin.name)))
        except ConfigException as error:
            warn(str(error))
    return found


def _show(console: Console, listed: Listed) -> None:
    write(console, f"{listed.plugin.name}  ({listed.plugin.value})", "bold")
    write(console, listed.description)
    console.print()
    for key in listed.keys:
        _show_key(console, key)
    compatibility = listed.connector.config_class.compatibility
    ignored = sorted(key for key, verdict in compatibility.items() if verdict.meaning is Meaning.IGNORED)
    if ignored:
        write(console, "Accepted without effect ('sinksdk validate' gives the reason):", "dim")
        _indented(console, Text(", ".join(ignored), style="dim"), 6)
    console.print()


def _show_key(console: Console, key: ConfigKey) -> None:
    line = Text(key.name, style="bold cyan").append(f"  {key.type}", style="dim")
    if key.required:
        line.append(", required", style="yellow")
    elif key.default:
        line.append(f", default {key.default}", style="dim")
    _indented(console, line, 2)
    _indented(console, Text(key.meaning), 6)


def _indented(console: Console, text: Text, columns: int) -> None:
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, columns), expand=False))
    else:
        console.print(Text(" " * columns).append_text(text), soft_wrap=True)
