"""What is kept under which key. Keys are a contract: a store written by one version is read by the next."""

from __future__ import annotations

import functools
from urllib.parse import quote, unquote

STORE_KEY = "store"
CONNECTORS = "connectors/"
"""What the keys of all connectors begin with."""

_CONFIG = "/config"


def config_key(connector: str) -> str:
    """Configuration, incarnation, target state."""
    return f"{_root(connector)}{_CONFIG}"


def connector_prefix(connector: str) -> str:
    """What all keys of a connector begin with."""
    return f"{_root(connector)}/"


def connector_of(key: str) -> str | None:
    """The name of the connector whose configuration a key holds, None for other keys."""
    if not key.endswith(_CONFIG):  # most do not, and all are looked at once a second
        return None
    return unquote(key.removeprefix(CONNECTORS).removesuffix(_CONFIG))


def task_count_key(connector: str) -> str:
    """The task count record (KIP-618)."""
    return f"{_root(connector)}/tasks-count"


def plan_key(connector: str, generation: int) -> str:
    """The plan of one generation."""
    return f"{_root(connector)}/generations/{generation:012d}"


def closing_key(connector: str, generation: int) -> str:
    """The request that a generation closes: its tasks look again and again, and the plan may be large.

    The key begins with its plan's key and is pruned with it.
    """
    return f"{plan_key(connector, generation)}-closing"


def segment_key(connector: str, generation: int, task: int, name: str) -> str:
    """Commits that a task has set apart; pruned with its generation's plan, as :func:`closing_key`."""
    return f"{plan_key(connector, generation)}-task-{task}-{name}"


def dropped_key(connector: str, generation: int) -> str:
    """Commits of topics that are not read any more, set apart from plans by the driver of a generation."""
    return f"{_root(connector)}/dropped/{generation:012d}"


def plans_prefix(connector: str) -> str:
    """Plans of all generations that are still kept, oldest first."""
    return f"{_root(connector)}/generations/"


def task_key(connector: str, task: int) -> str:
    """One task's writes."""
    return f"{_root(connector)}/tasks/{task}"


def status_key(connector: str) -> str:
    """State, heartbeat, last error."""
    return f"{_root(connector)}/status"


def ends_key(connector: str) -> str:
    """Where its source ends, and when its partitions were last committed."""
    return f"{_root(connector)}/ends"


def remembered_key(connector: str) -> str:
    """What its driver remembers of partitions and tasks: first-seen times, tails, failures."""
    return f"{_root(connector)}/remembered"


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
