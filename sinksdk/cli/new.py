"""``sinksdk new``: creates a package for a connector by copying and renaming a template that works."""

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
LONGEST_NAME: Final = 30  # longer names would exceed the template's line limit

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*([-_][A-Za-z0-9]+)*")
_WORD_BEGINS: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OF_EACH_PROJECT: Final = {"example", "src", "tests", "hypothesis", "mypy", "pyspark", "pytest", "ruff"}

# The files of each template, with a description; without one the file is not listed.
FILES: Final[Mapping[Kind, Mapping[str, str]]] = {
    "sink": {
        "src/my_sink/connector.py": "configuration, task and connector",
        "src/my_sink/destination.py": "the destination of records: change it first",
        "src/my_sink/__init__.py": "",
        "src/my_sink/py.typed": "",
        "tests/test_my_sink.py": "the test kit's check: crashes, zombies, rebalances",
        "my-sink.json": "an example configuration",
        "example/make_topic.py": "writes the topic that the example reads",
        "pyproject.toml": "the package, with its entry point",
        "Makefile": "make test, make run, make check",
        "README.md": "what to change, and where",
        ".gitignore": "",
    },
    "source": {
        "src/my_source/connector.py": "configuration, task and connector",
        "src/my_source/origin.py": "the origin of records: change it first",
        "src/my_source/__init__.py": "",
        "src/my_source/py.typed": "",
        "tests/test_my_source.py": "the test kit's check: crashes, zombies, more and fewer tasks",
        "my-source.json": "an example configuration",
        "example/input/a.jsonl": "the example's input",
        "example/input/b.jsonl": "",
        "example/show_topic.py": "prints the topic's records",
        "pyproject.toml": "the package, with its entry point",
        "Makefile": "make test, make run, make show, make check",
        "README.md": "what to change, and where",
        ".gitignore": "",
    },
}

Name = Annotated[str, typer.Argument(metavar="NAME", help="For example my-sink, my_sink or MySink.")]
Into = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder to create, or an empty one; default: NAME in the working directory."
    ),
]


@command
def new_sink(*, name: Name, into: Into = None, verbose: Verbose = False) -> None:
    """Create the package of a sink that works: it writes JSON lines to a folder, exactly once.

    NAME becomes the name of the package and the value of connector.class. Nothing is overwritten. Exit codes:
    0 created, 2 not created and nothing written.
    """
    _create("sink", name, into)


@command
def new_source(*, name: Name, into: Into = None, verbose: Verbose = False) -> None:
    """Create the package of a source that works: it reads the lines of a folder's files, exactly once.

    NAME becomes the name of the package and the value of connector.class. Nothing is overwritten. Exit codes:
    0 created, 2 not created and nothing written.
    """
    _create("source", name, into)


@dataclass(frozen=True, slots=True)
class Names:
    package: str
    module: str
    prefix: str

    @classmethod
    def of(cls, name: str) -> Names:
        if len(name) > LONGEST_NAME:
            raise ConfigException(
                f"the name has {len(name)} characters; choose one of at most {LONGEST_NAME}"
            )
        if not _NAME.fullmatch(name):
            raise ConfigException(
                f"{name!r} is not a valid package name: use letters (a to z) and digits, with '-' or '_' "
                f"between them, beginning with a letter; --into sets the folder"
            )
        words = re.split("[-_]", _WORD_BEGINS.sub("_", name))
        prefix = "".join(word[0].upper() + word[1:] for word in words)
        return cls("-".join(words).lower(), "_".join(words).lower(), prefix)

    def check(self) -> None:
        other = "choose another name"
        if keyword.iskeyword(self.module):
            raise ConfigException(f"'{self.module}' is a Python keyword; {other}")
        if self.module in sys.stdlib_module_names:
            raise ConfigException(f"'{self.module}' is a module of Python's standard library; {other}")
        if self.module in _OF_EACH_PROJECT:
            raise ConfigException(f"'{self.module}' is a folder or a dependency of the package; {other}")
        if any(plugin.name == self.package for plugin in plugins()):
            raise ConfigException(f"a connector '{self.package}' is already installed; {other}")
        # A spec without an origin is a plain folder, possibly the target.
        spec = importlib.util.find_spec(self.module)
        if (spec and spec.origin) or _is_installed(self.package):
            raise ConfigException(f"a package '{self.module}' is already installed; {other}")

    def replace(self, text: str, kind: Kind) -> str:
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
    folder = TEMPLATES / f"my-{kind}"
    return {
        names.replace(path, kind): names.replace((folder / path).read_text(encoding="utf-8"), kind)
        for path in FILES[kind]
    }


def _create(kind: Kind, name: str, into: Path | None) -> None:
    names = Names.of(name)
    target = Path(name) if into is None else into
    files = render(kind, names)
    if here := _origin():
        files["local.mk"] = f"# For this machine only: do not commit.\nSINKSDK := sinksdk @ {here}\n"
    with _os_errors_explained(target):
        _check_target(target)
        names.check()
        write_files(target, files)
    _show(stdout(), kind, names, target)


def _check_target(target: Path) -> None:
    if target.is_dir() and not any(target.iterdir()):
        return
    if os.path.lexists(target):
        what = "is not empty" if target.is_dir() else "is not a folder"
        raise ConfigException(
            f"{target} exists and {what}; nothing is overwritten: name another folder with --into"
        )
    if not target.parent.is_dir():
        raise ConfigException(f"the folder {target.parent} does not exist; create it first")


@contextmanager
def _os_errors_explained(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        taken = error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR)
        why = "another process created it meanwhile" if taken else error.strerror
        raise ConfigException(f"cannot create {target}: {why}; nothing was written") from error


def write_files(target: Path, files: Mapping[str, str]) -> None:
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
            staged.rename(target)  # fails if it exists and is not empty
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
    try:
        # PEP 610; empty if pip installed it from a package index.
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
    write(console, f"created {target}: the {kind} '{names.package}'", "bold green")
    rows = [(names.replace(path, kind), what) for path, what in FILES[kind].items() if what]
    write_pairs(console, rows)
    console.print()
    write(console, "next:")
    write(console, f"  cd {target}")
    write(console, "  make test")
