"""Faults of a source's case, and what else happens right before one of its operations."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from sinksdk.testing.faults import ORIGIN, TASK, TOPICS, FaultKind, FaultPlan

FAULTS: Final[Mapping[str, Sequence[FaultKind]]] = {
    TOPICS: tuple(kind for kind in FaultKind if kind is not FaultKind.SLOW),
    ORIGIN: tuple(kind for kind in FaultKind if kind is not FaultKind.SLOW),
    TASK: (FaultKind.CRASH_BEFORE, FaultKind.CRASH_AFTER),
}
"""What may go wrong where."""


class Event(StrEnum):
    """What else may happen between two operations."""

    FREEZE = "freeze"
    """The process stands still, another generation takes over and runs; then it wakes up, a zombie."""
    STOP = "stop"
    """The runtime stops the task, from another thread."""
    CHANGE = "change"
    """The next change of the origin happens."""


class FaultSchedule(FaultPlan):
    """A fault plan in which other things happen before operations too."""

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[tuple[str, int], Callable[[], None]] = {}
        self._thread = threading.local()

    def before(self, where: str, at: int, event: Callable[[], None]) -> None:
        """Let something happen before an operation, counted from now."""
        self._events[where, self.asked[where] + at] = event

    def enter(self) -> None:
        """This thread is one of the kit's; in those that a task has made itself only faults happen."""
        self._thread.is_entered = True

    def take(self, where: str) -> FaultKind | None:
        """Run the events before this operation; return its fault."""
        if not self.is_dying and getattr(self._thread, "is_entered", False):
            event = self._events.pop((where, self.asked[where]), None)
            if event is not None:
                event()
        return super().take(where)

    def disarm(self) -> None:
        """Drop all faults and events that are still to come."""
        super().disarm()
        self._events.clear()
