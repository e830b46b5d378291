"""What is kept under which key. Keys are a contract: a store written by one version is read by the next."""

from __future__ import annotations

import functools
from urllib.parse import quote, unquote

STORE_KEY = "store"
CONNECTORS = "connectors/"
"""What the keys of all connectors begin with."""


def config_key(connector: str) -> str:
    """Configuration, incarnation, target state."""
    return f"{_root(connector)}/config"


def connector_prefix(connector: str) -> str:
    """What all keys of a connector begin with."""
    return f"{_root(connector)}/"


def connector_of(key: str) -> str | None:
    """The name of the connector whose configuration a key holds, None for other keys."""
    root, _, last = key.rpartition("/")
    return unquote(root.removeprefix(CONNECTORS)) if last == "config" else None


def task_count_key(connector: str) -> str:
    """The task count record (KIP-618)."""
    return f"{_root(connector)}/tasks-count"


def plan_key(connector: str, generation: int) -> str:
    """The plan of one generation."""
    return f"{_root(connector)}/generations/{generation:012d}"


def plans_prefix(connector: str) -> str:
    """Plans of all generations that are still kept, oldest first."""
    return f"{_root(connector)}/generations/"


def task_key(connector: str, task: int) -> str:
    """One task's writes."""
    return f"{_root(connector)}/tasks/{task}"


def status_key(connector: str) -> str:
    """States, first-seen times, tails, last error."""
    return f"{_root(connector)}/status"


def progress_key(connector: str, task: int) -> str:
    """One task's positions while it runs."""
    return f"{_root(connector)}/progress/{task}"


def progress_prefix(connector: str) -> str:
    """Positions of all tasks."""
    return f"{_root(connector)}/progress/"


def totals_key(connector: str) -> str:
    """What all tasks have measured and counted, up to the last generation that ended."""
    return f"{_root(connector)}/totals"


def history_key(connector: str) -> str:
    """What was committed and what failed, lately."""
    return f"{_root(connector)}/history"


@functools.lru_cache(maxsize=256)
def _root(connector: str) -> str:
    return f"{CONNECTORS}{quote(connector, safe='')}"
