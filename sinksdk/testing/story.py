"""Steps as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from sinksdk.records import TopicPartition

END: Final = "in the end: no more faults, zombies close late, a new owner reads everything and closes"

_ORDINALS: Final = ("next", "second next", "third next")


def sentence(name: str, arguments: Sequence[Any], partitions: Sequence[TopicPartition]) -> str:
    """What a step does."""
    if name == "fault":
        where, at, kind = arguments
        ordinal = _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th next"
        return f"the {ordinal} {_OPERATIONS.get(where, where)} will meet: {kind}"
    if name not in _SENTENCES:
        return " ".join(map(str, (name, *arguments)))
    if name in _ON_A_PARTITION:
        which, *rest = arguments
        return _SENTENCES[name](partitions[which % len(partitions)], *rest)
    return _SENTENCES[name](*arguments)


_OPERATIONS: Final[Mapping[str, str]] = {
    "destination": "operation of the destination",
    "commit log": "write of the commit log",
    "task": "call of the task",
}

_ON_A_PARTITION: Final = ("deliver", "skip", "poison", "revoke", "lose", "zombie_deliver")


def _records(count: int) -> str:
    return f"{count} record{'' if count == 1 else 's'}"


_SENTENCES: Final[Mapping[str, Callable[..., str]]] = {
    "deliver": lambda partition, count: (
        f"{_records(count)} of {partition} {'is' if count == 1 else 'are'} put"
    ),
    "skip": lambda partition, count: f"{partition} has a gap of {count} offsets",
    "poison": lambda partition: f"a record of {partition} that cannot be delivered is put",
    "commit": lambda: "a periodic commit",
    "tick": lambda seconds: f"{seconds} s pass",
    "rebalance": lambda: "a rebalance: all partitions are closed with a commit, a new task opens them",
    "revoke": lambda partition: f"{partition} is revoked with a commit, the others stay",
    "lose": lambda partition: f"{partition} is lost: it is closed without a commit",
    "fence": lambda: "another attempt takes over, this one goes on as a zombie",
    "crash": lambda: "a crash",
    "zombie_deliver": lambda partition, count: f"the zombie is given {_records(count)} of {partition}",
    "zombie_commit": lambda: "the zombie tries to commit",
    "zombie_tick": lambda seconds: f"{seconds} s pass for the zombie",
    "zombie_close": lambda: "the zombie is asked to close, late",
}
