"""``sinksdk new``; ``examples/outside/try_it.py`` shows that the packages work once installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import Distribution
from pathlib import Path

import pytest

import sinksdk
from sinksdk.cli import new
from sinksdk.cli.new import FILES, LONGEST_NAME, TEMPLATES, Kind, Names, render, write_files
from sinksdk.errors import ConfigException
from tests.cli.support import Here

KINDS: tuple[Kind, ...] = ("sink", "source")
every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def here(here: Here, monkeypatch: pytest.MonkeyPatch) -> Here:
    monkeypatch.chdir(here.folder)
    return here


def files_in(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("name", "package", "module", "prefix"),
    [
        ("my-orders", "my-orders", "my_orders", "MyOrders"),
        ("my_orders", "my-orders", "my_orders", "MyOrders"),
        ("MyOrders", "my-orders", "my_orders", "MyOrders"),
        ("orders", "orders", "orders", "Orders"),
        ("S3Copy", "s3-copy", "s3_copy", "S3Copy"),
        ("HTTPSink", "http-sink", "http_sink", "HTTPSink"),
        ("my-sink-2", "my-sink-2", "my_sink_2", "MySink2"),
        ("a", "a", "a", "A"),
    ],
)
def test_a_name_is_accepted_as_package_module_or_class(
    name: str, package: str, module: str, prefix: str
) -> None:
    assert Names.of(name) == Names(package, module, prefix)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "'' is not a valid package name: use letters"),
        ("größe", "'größe' is not a valid package name"),
        ("a/b", "'a/b' is not a valid package name"),
        ("../a", "'../a' is not a valid package name"),
        ("1st", "'1st' is not a valid package name"),
        ("my sink", "'my sink' is not a valid package name"),
        ("my-", "'my-' is not a valid package name"),
        ("my--sink", "'my--sink' is not a valid package name"),
        ("sink\n", "is not a valid package name"),
        ("x" * (LONGEST_NAME + 1), "the name has 31 characters; choose one of at most 30"),
        ("class", "'class' is a Python keyword"),
        ("json", "'json' is a module of Python's standard library"),
        ("Queue", "'queue' is a module of Python's standard library"),
        ("tests", "'tests' is a folder or a dependency of the package"),
        ("pyarrow", "a package 'pyarrow' is already installed"),
        ("sinksdk", "a package 'sinksdk' is already installed"),
        ("s3-archiver", "a connector 's3-archiver' is already installed"),
    ],
)
def test_an_invalid_name_is_refused(here: Here, name: str, why: str) -> None:
    before = files_in(here.folder)

    result = here.sinksdk("new", "sink", name, "--into", "made")

    assert result.exit_code == 2
    assert why in result.stderr
    assert files_in(here.folder) == before
    assert not (here.folder / "made").exists()


@every_kind
def test_a_package_is_created_and_the_next_commands_are_printed(here: Here, kind: Kind) -> None:
    result = here.sinksdk("new", kind, "Orders2Go")

    assert result.exit_code == 0
    assert result.stdout.startswith(f"created Orders2Go: the {kind} 'orders2-go'\n")
    assert result.stdout.endswith("next:\n  cd Orders2Go\n  make test\n")
    made = files_in(here.folder / "Orders2Go")
    assert {name for name in made if name != "local.mk"} == {
        name.replace(f"my-{kind}", "orders2-go").replace(f"my_{kind}", "orders2_go") for name in FILES[kind]
    }
    own = (f"my-{kind}", f"my_{kind}", f"My{kind.title()}")
    assert [(name, word) for name, text in made.items() for word in own if word in name or word in text] == []
    assert json.loads(made["orders2-go.json"])["config"]["connector.class"] == "orders2-go"
    assert 'orders2-go = "orders2_go:Orders2GoConnector"' in made["pyproject.toml"]


@every_kind
def test_every_file_of_a_template_is_copied(kind: Kind) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=TEMPLATES / f"my-{kind}", capture_output=True, text=True, check=True)
    assert set(listed.stdout.splitlines()) == set(FILES[kind])


@every_kind
def test_a_package_requires_this_version_of_sinksdk(kind: Kind) -> None:
    text = (TEMPLATES / f"my-{kind}" / "pyproject.toml").read_text()
    assert f'dependencies = ["sinksdk>={sinksdk.__version__}"]' in text


@pytest.mark.parametrize("name", ["a", "AB", "x" * LONGEST_NAME, "zebra-sink"])
@every_kind
def test_a_package_of_any_name_passes_ruff(tmp_path: Path, kind: Kind, name: str) -> None:
    write_files(tmp_path / "made", render(kind, Names.of(name)))

    for command in (
        ["format", "--check"],
        ["check"],
        ["check", "--isolated"],
        ["format", "--check", "--isolated"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--no-cache", "."],
            cwd=tmp_path / "made",
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


def test_an_empty_folder_is_filled_and_keeps_its_inode(here: Here) -> None:
    # The name must not make a shell leave the folder.
    (here.folder / "mine").mkdir()
    inode = (here.folder / "mine").stat().st_ino

    assert here.sinksdk("new", "sink", "orders", "--into", "mine").exit_code == 0

    assert (here.folder / "mine").stat().st_ino == inode
    assert not list((here.folder / "mine").glob(".new-*"))
    assert (here.folder / "mine/src/orders/connector.py").exists()


@pytest.mark.parametrize(
    ("into", "why"),
    [
        ("full", "full exists and is not empty; nothing is overwritten"),
        ("full/Makefile", "full/Makefile exists and is not a folder"),
        ("link", "link exists and is not a folder"),
        ("absent/made", "the folder absent does not exist; create it first"),
    ],
)
def test_existing_files_are_not_overwritten(here: Here, into: str, why: str) -> None:
    (here.folder / "full").mkdir()
    here.file("full/Makefile", "mine")
    (here.folder / "link").symlink_to("nowhere")
    before = files_in(here.folder)

    result = here.sinksdk("new", "source", "orders", "--into", into)

    assert result.exit_code == 2
    assert why in result.stderr
    assert files_in(here.folder) == before
    assert (here.folder / "link").is_symlink()


@pytest.mark.parametrize("is_there", [True, False])
def test_a_full_disk_leaves_no_files(here: Here, monkeypatch: pytest.MonkeyPatch, *, is_there: bool) -> None:
    if is_there:
        (here.folder / "orders").mkdir()
    before = sorted(here.folder.rglob("*"))
    rename, renamed = Path.rename, list[Path]()

    def third_time_fails(path: Path, target: Path) -> Path:
        if len(renamed) == (2 if is_there else 0):
            raise OSError(28, os.strerror(28))
        renamed.append(path)
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", third_time_fails)
    result = here.sinksdk("new", "sink", "orders")

    assert result.exit_code == 2
    assert "cannot create orders: No space left on device; nothing was written" in result.stderr
    assert sorted(here.folder.rglob("*")) == before


@every_kind
def test_a_folder_that_another_process_created_is_not_changed(tmp_path: Path, kind: Kind) -> None:
    files = render(kind, Names.of("orders"))
    write_files(tmp_path / "made", files)

    with pytest.raises(OSError, match="exists"):
        write_files(tmp_path / "made", {"Makefile": "other"})

    assert files_in(tmp_path / "made") == files
    assert [path.name for path in tmp_path.iterdir()] == ["made"]


@pytest.mark.parametrize(
    ("direct_url", "wanted"),
    [
        (None, ""),
        ({"url": "file://{folder}", "dir_info": {}}, "file://{folder}"),
        ({"url": "file://{folder}/gone.whl", "archive_info": {}}, ""),
        (
            {"url": "https://example.org/s.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}},
            "git+https://example.org/s.git@abc",
        ),
    ],
)
def test_local_mk_names_the_installed_sinksdk(
    here: Here, monkeypatch: pytest.MonkeyPatch, direct_url: dict[str, object] | None, wanted: str
) -> None:
    # Packages from an index have no direct_url.json (PEP 610).
    text = None if direct_url is None else json.dumps(direct_url).replace("{folder}", str(here.folder))

    class Installed(Distribution):
        def read_text(self, filename: str) -> str | None:
            return text

        def locate_file(self, path: object) -> Path:
            raise NotImplementedError

    monkeypatch.setattr(new, "_is_installed", lambda package: False)
    monkeypatch.setattr(new, "distribution", lambda name: Installed())

    assert here.sinksdk("new", "sink", "orders").exit_code == 0

    local = here.folder / "orders/local.mk"
    wanted = wanted.replace("{folder}", str(here.folder))
    assert local.exists() == bool(wanted)
    assert not wanted or f"SINKSDK := sinksdk @ {wanted}\n" in local.read_text()
    assert "local.mk" in (here.folder / "orders/.gitignore").read_text().splitlines()


def test_a_class_name_whose_module_is_taken_is_refused() -> None:
    with pytest.raises(ConfigException, match="'csv' is a module of Python's standard library"):
        Names.of("CSV").check()
