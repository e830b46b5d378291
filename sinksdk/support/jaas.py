"""Options in ``sasl.jaas.config``, as Java writes them."""

from __future__ import annotations

import re
from typing import Final

_OPTION: Final = re.compile(
    r"""\b(username|password|keyTab|principal)\s*=\s*("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|[^\s;]+)"""
)


def jaas_options(text: str) -> list[tuple[str, str]]:
    """Return the options of a JAAS configuration that clients here understand, in its order."""
    return [(match[1], _unquoted(match[2])) for match in _OPTION.finditer(text)]


def _unquoted(text: str) -> str:
    if text[:1] in {'"', "'"}:
        return re.sub(r"\\(.)", r"\1", text[1:-1])
    return text
