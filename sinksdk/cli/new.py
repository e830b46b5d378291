"""``sinksdk new``: a package to start from, a copy of one that works, under another name.

What is copied lies in ``sinksdk/templates``: two projects, linted, type-checked and tested as they are.
"""

from __future__ import annotations

import errno
import importlib.util
import json
import keyword
import os
import re
import shutil
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Annotated, Final, Literal
from urllib.parse import unquote

import typer
from rich.console import Console

from sinksdk.cli.options import Verbose
from sinksdk.cli.output import command, stdout, write, write_pairs
from sinksdk.errors import ConfigException
from sinksdk.plugins.classes import plugins

Kind = Literal["sink", "source"]

TEMPLATES: Final = Path(__file__).parents[1] / "templates"
LONGEST_NAME: Final = 30
"""Characters: longer ones would not fit the lines of the code."""

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_WORD_BEGINS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OF_EACH_PROJECT: Final = {"example", "src", "tests", "hypothesis", "mypy", "pyspark", "pytest", "ruff"}

FILES: Final[Mapping[Kind, Mapping[str, str]]] = {
    "sink": {
        "src/my_sink/connector.py": "configuration, task and connector",
        "src/my_sink/destination.py": "where the records go: what you change first",
        "src/my_sink/__init__.py": "",
        "src/my_sink/py.typed": "",
        "tests/test_my_sink.py": "the kit's check: crashes, zombies, rebalances",
        "my-sink.json": "an example's configuration",
        "example/make_topic.py": "writes the topic that it reads",
        "pyproject.toml": "the package, with its entry point",
        "Makefile": "make test, make run, make check",
        "README.md": "what to change where",
        ".gitignore": "",
    },
    "source": {
        "src/my_source/connector.py": "configuration, task and connector",
        "src/my_source/origin.py": "where the records come from: what you change first",
        "src/my_source/__init__.py": "",
        "src/my_source/py.typed": "",
        "tests/test_my_source.py": "the kit's check: crashes, zombies, more and fewer tasks",
        "my-source.json": "an example's configuration",
        "example/input/a.jsonl": "what it reads",
        "example/input/b.jsonl": "",
        "example/show_topic.py": "prints what is in the topic",
        "pyproject.toml": "the package, with its entry point",
        "Makefile": "make test, make run, make show, make check",
        "README.md": "what to change where",
        ".gitignore": "",
    },
}
"""The files of each template, with what they are."""

Name = Annotated[str, typer.Argument(metavar="NAME", help="Such as my-sink, my_sink or MySink.")]
Into = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="The folder to make, or an empty one. Default: NAME, here."),
]


@command
def new_sink(*, name: Name, into: Into = None, verbose: Verbose = False) -> None:
    """Make the package of a sink, which works: JSON lines in a folder, exactly once.

    NAME becomes that of the package and what connector.class takes. Nothing is overwritten. Exit codes: 0
    it is made, 2 it cannot be made and nothing was written.
    """
    _make("sink", name, into)


@command
def new_source(*, name: Name, into: Into = None, verbose: Verbose = False) -> None:
    """Make the package of a source, which works: the lines of a folder's files, exactly once.

    NAME becomes that of the package and what connector.class takes. Nothing is overwritten. Exit codes: 0
    it is made, 2 it cannot be made and nothing was written.
    """
    _make("source", name, into)


@dataclass(frozen=True, slots=True)
class Names:
    """What one name is called where.

    Args:
        package: what is installed, and what ``connector.class`` takes: ``my-sink``.
        module: what is imported: ``my_sink``.
        prefix: what classes begin with: ``MySink``.
    """

    package: str
    module: str
    prefix: str

    @classmethod
    def of(cls, name: str) -> Names:
        """The forms of a name that was given in one of them.

        Raises:
            ConfigException: it cannot be the name of a package, a module and classes.
        """
        if len(name) > LONGEST_NAME:
            raise ConfigException(f"the name has {len(name)} characters; take one of at most {LONGEST_NAME}")
        if not _NAME.fullmatch(name):
            raise ConfigException(
                f"{name!r} cannot be the name of a package: take letters (a to z), digits, and '-' or '_' "
                f"between them, beginning with a letter; --into says where it goes"
            )
        words = re.split("[-_]", _WORD_BEGINS.sub("_", name))
        prefix = "".join(word[0].upper() + word[1:] for word in words)
        return cls("-".join(words).lower(), "_".join(words).lower(), prefix)

    def check(self) -> None:
        """Raises ConfigException where the name is taken, by Python or by what is installed."""
        other = "take another name"
        if keyword.iskeyword(self.module):
            raise ConfigException(f"'{self.module}' is a keyword of Python and cannot be imported; {other}")
        if self.module in sys.stdlib_module_names:
            raise ConfigException(f"'{self.module}' is a module of Python itself; {other}")
        if self.module in _OF_EACH_PROJECT:
            raise ConfigException(
                f"'{self.module}' is something that the package has or needs itself; {other}"
            )
        if any(plugin.name == self.package for plugin in plugins()):
            raise ConfigException(f"a connector '{self.package}' is installed already; {other}")
        spec = importlib.util.find_spec(
            self.module
        )  # without an origin: any folder, perhaps that to be filled
        if (spec and spec.origin) or _is_installed(self.package):
            raise ConfigException(f"a package '{self.module}' is installed already; {other}")

    def replace(self, text: str, kind: Kind) -> str:
        """A template's text, or path, with this name in it."""
        for placeholder, name in (
            (f"my-{kind}", self.package),
            (f"my_{kind}", self.module),
            (f"My{kind.title()}", self.prefix),
        ):
            text = text.replace(placeholder, name)
        return text


def _is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


def render(kind: Kind, names: Names) -> dict[str, str]:
    """Path and content of each file."""
    folder = TEMPLATES / f"my-{kind}"
    return {
        names.replace(path, kind): names.replace((folder / path).read_text(encoding="utf-8"), kind)
        for path in FILES[kind]
    }


def _make(kind: Kind, name: str, into: Path | None) -> None:
    names = Names.of(name)
    target = Path(name) if into is None else into
    files = render(kind, names)
    if here := _origin():
        files["local.mk"] = f"# This machine's, not to be committed.\nSINKSDK := sinksdk @ {here}\n"
    with _explained(target):
        _check_target(target)
        names.check()
        write_files(target, files)
    _show(stdout(), kind, names, target)


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if os.path.lexists(target):
        what = "is a folder that is not empty" if target.is_dir() else "is there and no folder"
        raise ConfigException(f"{target} {what}, and nothing is overwritten; name another one with --into")
    if not target.parent.is_dir():
        raise ConfigException(f"there is no folder {target.parent} to make {target.name} in; make it first")


@contextmanager
def _explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        why = "something else was made there meanwhile" if taken else error.strerror
        raise ConfigException(f"{target} cannot be made: {why}; nothing was written") from error


def write_files(target: Path, files: Mapping[str, str]) -> None:
    """All files or none: they are written beside a new folder, or inside of an empty one, then renamed.

    Raises:
        OSError: it is not possible, or the folder is not empty any more.
    """
    is_new = not target.is_dir()
    if not is_new and any(target.iterdir()):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))
    staged = (target.parent if is_new else target) / f".new-{uuid.uuid4().hex}"
    moved: list[Path] = []
    try:
        for name, content in files.items():
            path = staged / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8", newline="\n")
        if is_new:
            staged.rename(target)  # fails where there is something by now
            return
        for path in staged.iterdir():
            path.rename(target / path.name)
            moved.append(target / path.name)
        staged.rmdir()
    except BaseException:
        for path in (staged, *moved):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        raise


def _origin() -> str:
    """What pip installs this sinksdk from, if that is no package index (PEP 610)."""
    try:
        found = json.loads(distribution("sinksdk").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return ""
    url = str(found.get("url", ""))
    if url.startswith("file://") and not Path(unquote(url.removeprefix("file://"))).exists():
        return ""
    if version := found.get("vcs_info"):
        return f"{version['vcs']}+{url}@{version['commit_id']}"
    return url


def _show(console: Console, kind: Kind, names: Names, target: Path) -> None:
    """What was made, and what to do next."""
    write(console, f"made {target}: the {kind} '{names.package}'", "bold green")
    rows = [(names.replace(path, kind), what) for path, what in FILES[kind].items() if what]
    write_pairs(console, rows)
    console.print()
    write(console, "next:")
    write(console, f"  cd {target}")
    write(console, "  make test")
