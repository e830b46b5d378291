"""References in configurations: ``${env:NAME}`` and ``${file:/path:key}``, as in Connect (KIP-297)."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from sinksdk.errors import ConfigException
from sinksdk.settings.client_overrides import local_files
from sinksdk.settings.properties import read_properties

CONFIG_PROVIDERS: Final = frozenset({"env", "file"})
_REFERENCE: Final = re.compile(r"\$\{(?P<provider>env|file):(?P<what>[^}]*)\}")


def resolve_references(text: str) -> str:
    return _REFERENCE.sub(_look_up, text)


def references(text: str) -> list[str]:
    return [match.group(0) for match in _REFERENCE.finditer(text)]


@dataclass(frozen=True, slots=True)
class ConfigProviders:
    """The references allowed in a configuration that comes from another machine.

    Args:
        variables: names of environment variables, as shell patterns.
        folders: folders of the files that references may read, and that Kafka's and other clients may open.
        sql: whether ``records.sql`` may use tables, files, Java methods and commands.
    """

    # The author of a configuration decides where values are sent, and so could read everything that its
    # references can name. As in Connect, nothing is allowed by default (config.providers, allowed.paths of
    # KIP-993, allowlist.pattern of KIP-887).
    variables: Collection[str] = ()
    folders: Collection[Path] = ()
    hint: str = ""
    sql: bool = False

    def problems(self, config: Mapping[str, str]) -> list[str]:
        hint = f": {self.hint}" if self.hint else ""
        problems = [
            f"'{key}': {match.group(0)} is not allowed here{hint}"
            for key, text in config.items()
            for match in _REFERENCE.finditer(text)
            if not self._allows(match)
        ]
        return problems + [
            f"'{key}': the path {path} is not allowed here{hint}"
            for key, text in config.items()
            for path in local_files(key, text)
            if not _REFERENCE.fullmatch(path) and not self._allows_path(path)
        ]

    def _allows(self, match: re.Match[str]) -> bool:
        what = match.group("what")
        if match.group("provider") == "env":
            return any(fnmatchcase(what, pattern) for pattern in self.variables)
        return self._allows_file(what.rpartition(":")[0])

    def _allows_path(self, path: str) -> bool:
        if not all(map(self._allows, _REFERENCE.finditer(path))):
            return True  # parsing reports the reference
        try:
            return self._allows_file(resolve_references(path))
        except ConfigException:
            return True  # parsing reports the reference

    def _allows_file(self, path: str) -> bool:
        try:
            # The system follows a link before the '..' after it; os.path.abspath removes '..' first.
            real = {Path(path).resolve(), Path(os.path.abspath(path)).resolve()}  # noqa: PTH100 - as the comment says
        except (OSError, RuntimeError, ValueError):
            return False  # a circle of links, or not a path
        return bool(path) and all(
            any(each.is_relative_to(folder.resolve()) for folder in self.folders) for each in real
        )


# The user who started the process can read all files and variables anyway.
ALL_PROVIDERS: Final = ConfigProviders(("*",), (Path("/"),), sql=True)


def _look_up(match: re.Match[str]) -> str:
    reference, what = match.group(0), match.group("what")
    if match.group("provider") == "env":
        if what not in os.environ:
            raise ConfigException(f"{reference}: the environment variable {what} is not set here")
        return os.environ[what]
    path, _, key = what.rpartition(":")
    if not path:
        raise ConfigException(f"{reference}: it must name a file and a key, as ${{file:/path:key}}")
    properties = read_properties(_text_of(reference, path), reference)
    found = [each.value for each in properties if each.key == key]
    if not found:
        raise ConfigException(f"{reference}: the file has no line '{key}=…'")
    return found[-1]  # as in Java, the last value of a repeated key counts


def _text_of(reference: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        problem = str(error.strerror)
    except UnicodeDecodeError:
        problem = "the file is not UTF-8"
    except ValueError:
        problem = "the path does not exist"
    # Raised outside the handlers, because a decoding error contains the file's bytes.
    raise ConfigException(f"{reference}: {problem}")
