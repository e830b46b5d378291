"""Every operation of a case is a moment: it may go wrong, and something else may happen right before it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final

from sinksdk.testing.faults import TASK, FaultKind, FaultPlan
from sinksdk.testing.source_kit.origin import ORIGIN

TOPICS: Final = "topics"
"""Operations of the writer of a task's records, and looks at its offsets."""

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
    """The task is asked to stop, from another thread."""
    CHANGE = "change"
    """The next change of the origin happens."""


class Moments(FaultPlan):
    """A fault plan in which other things happen before operations too."""

    def __init__(self) -> None:
        super().__init__()
        self._events: dict[tuple[str, int], Callable[[], None]] = {}
        self._stage = threading.local()

    def before(self, where: str, at: int, event: Callable[[], None]) -> None:
        """Let something happen before an operation, counted from now."""
        self._events[where, self.asked[where] + at] = event

    def enter(self) -> None:
        """This thread is one of the kit's; in those that a task has made itself only faults happen."""
        self._stage.is_entered = True

    @property
    def is_dying(self) -> bool:
        """Whether the process that runs is dying."""
        return self._is_dying

    def take(self, where: str) -> FaultKind | None:
        """What happens before this operation, then how it goes wrong."""
        if not self._is_dying and getattr(self._stage, "is_entered", False):
            event = self._events.pop((where, self.asked[where]), None)
            if event is not None:
                event()
        return super().take(where)

    def disarm(self) -> None:
        """From now on everything goes well, and nothing else happens."""
        super().disarm()
        self._events.clear()
