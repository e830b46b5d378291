"""What Python workers of executors raise, as Spark hands it on: a text with stack traces in it."""

from __future__ import annotations

import re
from typing import Final

from sinksdk.store import StoreUnavailable

_TRACE: Final = "Traceback (most recent call last):"
_JAVA_FRAME: Final = "\tat "
_UNAVAILABLE: Final = f"{StoreUnavailable.__module__}.{StoreUnavailable.__qualname__}: "
_MISSING: Final = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


def raised(text: str) -> str | None:
    """What was raised last, by the first line of what it says; None of a text without a Python stack trace.

    What an exception says may go on for lines, and end with a link to a manual.
    """
    _, begun, rest = text.rpartition(_TRACE)
    for line in rest.splitlines() if begun else ():
        if line.startswith(_JAVA_FRAME):
            break
        if line and not line[0].isspace():
            return line
    return None


def unavailable_store(text: str) -> str | None:
    """What a worker has said of a store that gave it no answer, if that is what it has failed with."""
    error = raised(text) or ""
    return error.removeprefix(_UNAVAILABLE) if error.startswith(_UNAVAILABLE) else None


def missing_module(text: str) -> str | None:
    """The module that a worker could not import, if that is what it has failed with."""
    found = _MISSING.match(raised(text) or "")
    return found[1] if found else None
