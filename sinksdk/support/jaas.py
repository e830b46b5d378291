"""Options in ``sasl.jaas.config``, in Java's syntax."""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(
    r"""\b(username|password|keyTab|principal)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)"""
)


def jaas_options(text: str) -> list[tuple[str, str]]:
    return [(match[1], _unquoted(match[2])) for match in _OPTION.finditer(text)]


def _unquoted(text: str) -> str:
    if text[:1] in {'"', "'"}:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
