"""Steps as sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

END: Final = "in the end: no more faults, everything has happened to the origin, tasks read what is left"

_ORDINALS: Final = ("next", "second next", "third next")
_OPERATIONS: Final[Mapping[str, str]] = {
    "topics": "operation of the topics",
    "origin": "operation of the origin",
    "task": "call of the task",
}
_EVENTS: Final[Mapping[str, str]] = {
    "freeze": "the process will freeze, and another generation run",
    "stop": "the task will be asked to stop",
    "change": "the origin will change",
}


def sentence(name: str, arguments: Sequence[Any]) -> str:
    """What a step does."""
    return _SENTENCES[name](*arguments)


def _ordinal(at: int) -> str:
    return _ORDINALS[at] if at < len(_ORDINALS) else f"{at + 1}th next"


def _times(count: int) -> str:
    return {0: "not even once", 1: "once", 2: "twice"}.get(count, f"{count} times")


_SENTENCES: Final[Mapping[str, Callable[..., str]]] = {
    "run": lambda more, polls: (
        f"a generation of {1 + more} task{'s' if more else ''} begins, to poll {_times(polls)} and be stopped"
    ),
    "boundary": lambda name: f"from now on transactions end at: {name}",
    "idle": lambda: "in the end tasks will go on for a while, though there is nothing left",
    "fault": lambda where, at, kind: f"the {_ordinal(at)} {_OPERATIONS.get(where, where)} will meet: {kind}",
    "meanwhile": lambda where, at, what: (
        f"before the {_ordinal(at)} {_OPERATIONS.get(where, where)} {_EVENTS.get(what, what)}"
    ),
    "change": lambda: "the origin changes",
}
