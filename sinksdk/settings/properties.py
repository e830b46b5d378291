"""Reads Java's ``.properties`` files as ``java.util.Properties`` does, in UTF-8."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from sinksdk.errors import ConfigException

_BLANKS: Final = " \t\f"
_NEWLINE: Final = re.compile(r"\r\n|\r|\n")
_PROPERTY: Final = re.compile(
    r"((?:\\.|[^\\ \t\f=:])*)[ \t\f]*([=:]?)[ \t\f]*(.*)",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(u[0-9A-Fa-f]{4}|.)", re.DOTALL)
_CONTROLS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class Property:
    """One key and its value, unescaped; ``separator`` is empty without ``=`` or ``:``."""

    line: int
    key: str
    value: str
    separator: str


def read_properties(text: str, where: str) -> Iterator[Property]:
    for number, line in _logical_lines(text):
        key, separator, rest = _PROPERTY.fullmatch(line).groups()  # type: ignore[union-attr] # its last group takes any rest
        try:
            # Unlike in Java, blanks at a value's end are dropped, because they are invisible; "\ " keeps one.
            yield Property(number, _unescaped(key), _unescaped(_stripped(rest)), separator)
        except ValueError as error:
            raise ConfigException(f"{where}: line {number}: {error}") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    lines = enumerate(_NEWLINE.split(text), 1)
    for number, line in lines:
        whole = line.lstrip(_BLANKS)
        if whole.startswith(("#", "!")):
            continue
        while _is_continued(whole):
            # A backslash at the file's end is dropped as well, as in Java.
            whole = whole[:-1] + next(lines, (0, ""))[1].lstrip(_BLANKS)
        if whole:
            yield number, whole


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1  # an even number is escaped backslashes


def _stripped(value: str) -> str:
    stripped = value.rstrip(_BLANKS)
    return value[: len(stripped) + 1] if _is_continued(stripped) else stripped


def _unescaped(text: str) -> str:
    found = _ESCAPE.sub(_unescaped_character, text)
    # Java writes a character beyond 16 bits as two escapes.
    return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescaped_character(escape: re.Match[str]) -> str:
    code = escape[1]
    if len(code) > 1:
        return chr(int(code[1:], 16))
    if code == "u":
        raise ValueError(
            r"'\u' must be followed by four hexadecimal digits; a backslash itself is written '\\'"
        )
    return _CONTROLS.get(code, code)
