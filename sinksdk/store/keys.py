"""The store's keys. They are a contract: a store written by one version is read by the next."""

from __future__ import annotations

import functools
from urllib.parse import quote, unquote

STORE_KEY = "store"
CONNECTORS = "connectors/"

_CONFIG = "/config"


def config_key(connector: str) -> str:
    """Return the key of the connector's configuration, incarnation and target state."""
    return f"{_root(connector)}{_CONFIG}"


def connector_prefix(connector: str) -> str:
    return f"{_root(connector)}/"


def connector_of(key: str) -> str | None:
    # All keys are checked once a second, and most of them are of other values.
    if not key.endswith(_CONFIG):
        return None
    return unquote(key.removeprefix(CONNECTORS).removesuffix(_CONFIG))


def task_count_key(connector: str) -> str:
    """Return the key of the task count record (KIP-618)."""
    return f"{_root(connector)}/tasks-count"


def plan_key(connector: str, generation: int) -> str:
    """Return the key of the plan of one generation."""
    return f"{_root(connector)}/generations/{generation:012d}"


def closing_key(connector: str, generation: int) -> str:
    # The key begins with the plan's key, so that both are pruned together; it is separate, because tasks poll
    # it.
    return f"{plan_key(connector, generation)}-closing"


def segment_key(connector: str, generation: int, task: int, name: str) -> str:
    # The task's segments are pruned with its plan.
    return f"{plan_key(connector, generation)}-task-{task}-{name}"


def dropped_key(connector: str, generation: int) -> str:
    """Return the key of commits of topics no longer read, which a driver has moved out of the plans."""
    return f"{_root(connector)}/dropped/{generation:012d}"


def plans_prefix(connector: str) -> str:
    return f"{_root(connector)}/generations/"


def task_key(connector: str, task: int) -> str:
    """Return the key of one task's record."""
    return f"{_root(connector)}/tasks/{task}"


def status_key(connector: str) -> str:
    """Return the key of the connector's status: state, heartbeat, last error."""
    return f"{_root(connector)}/status"


def ends_key(connector: str) -> str:
    return f"{_root(connector)}/ends"


def remembered_key(connector: str) -> str:
    return f"{_root(connector)}/remembered"


def progress_key(connector: str, task: int) -> str:
    """Return the key of a running task's positions."""
    return f"{_root(connector)}/progress/{task}"


def progress_prefix(connector: str) -> str:
    return f"{_root(connector)}/progress/"


def totals_key(connector: str) -> str:
    """Return the key of the measurements and counters of all tasks, up to the last ended generation."""
    return f"{_root(connector)}/totals"


def history_key(connector: str) -> str:
    return f"{_root(connector)}/history"


@functools.lru_cache(maxsize=256)
def _root(connector: str) -> str:
    return f"{CONNECTORS}{quote(connector, safe='')}"
