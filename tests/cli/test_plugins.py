from __future__ import annotations

import json
from importlib.metadata import EntryPoint

import pytest
from rich.text import Text

from sinksdk import ConfigException
from sinksdk.plugins import classes as plugins
from sinksdk.plugins.classes import connector_class
from tests.cli.support import Here


def test_installed_connectors_are_listed_with_their_reference(here: Here) -> None:
    result = here.sinksdk("plugins")

    assert result.exit_code == 0
    assert "s3-archiver  (sinksdk.connectors.s3_archiver:S3ArchiverConnector)\n" in result.stdout
    assert "  s3.bucket.name  text, required\n      Bucket the archive" in result.stdout
    assert "  tasks.max  integer, default 1\n" in result.stdout


def test_plugins_shows_one_connector_by_any_of_its_names(here: Here) -> None:
    result = here.sinksdk("plugins", "linesink:Sink")

    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[:2] == ["linesink:Sink  (linesink:Sink)", "Writes lines."]
    assert lines.index("  out.folder  text, required") < lines.index("  name  text, required")
    assert "format.class" in lines[-2]


def test_plugins_json_has_each_connector_with_its_keys(here: Here) -> None:
    (connector,) = json.loads(here.sinksdk("plugins", "linesink:Sink", "--json").stdout)

    assert connector["name"] == "linesink:Sink"
    assert connector["keys"][1] == {
        "name": "lines.per.file",
        "type": "integer",
        "default": "10",
        "required": False,
        "meaning": "Lines of one file.",
    }
    assert connector["compatibility"]["lines.encoding"] == {
        "meaning": "unsupported",
        "why": "lines are UTF-8: take it out",
        "cases": {"UTF-8": {"meaning": "same", "why": "", "cases": {}}},
    }


def test_plugins_of_an_unknown_name_exits_2(here: Here) -> None:
    result = here.sinksdk("plugins", "s4")

    assert result.exit_code == 2
    assert "no connector is called 's4'; installed are s3-archiver" in result.stderr


def test_an_unloadable_plugin_does_not_hide_the_others(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [EntryPoint(name, f"{name}:Sink", plugins.GROUP) for name in ("absent", "linesink")]

    def entry_points(*, group: str, name: str | None = None) -> list[EntryPoint]:
        return [entry for entry in entries if name in (None, entry.name)]

    monkeypatch.setattr(plugins, "entry_points", entry_points)

    result = here.sinksdk("plugins")

    assert result.exit_code == 0
    assert "warning: 'connector.class': cannot import module 'absent'" in result.stderr
    assert "linesink  (linesink:Sink)" in result.stdout


def test_the_reference_fits_80_columns_on_a_terminal(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("FORCE_COLOR", "1")

    result = here.sinksdk("plugins", "s3-archiver")

    lines = Text.from_ansi(result.stdout).plain.splitlines()
    assert max(map(len, lines)) <= 80
    assert any(line.startswith("      Exact number of records after which") for line in lines)


@pytest.mark.parametrize("name", ["__main__:Sink", "__main__.Sink"])
def test_a_connector_class_in_main_is_refused(name: str) -> None:
    # Executors cannot import from __main__.
    with pytest.raises(ConfigException, match="is in the running program, which executors cannot import"):
        connector_class(name)
