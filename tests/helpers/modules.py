"""A copy of a module with other functions, for one module that uses it."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any


def changed(module: ModuleType, **functions: Any) -> SimpleNamespace:
    """Return the names of a module with some replaced; threads of other tests keep using the module itself."""
    return SimpleNamespace(**{**vars(module), **functions})
