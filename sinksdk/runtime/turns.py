"""How much a task reads in one generation, so that it gives its place up again after a while.

A place is held until a generation ends, and a backlog could keep it busy for hours. How long records take is
learned from the generations before: it is the sink's speed, which nobody knows beforehand.
"""

from __future__ import annotations

import math
from typing import Final

LEAST: Final = 200_000
"""Records that a task may read in any turn, so that what each generation costs anew (Spark's queue, a sink's
opening and committing) never weighs more than the records."""

_GROWTH: Final = 8  # times as many at most in the next turn: the first seconds of a job say little


class Turns:
    """One connector's generations, and how long they last.

    Args:
        seconds: that a generation should last at most, about; 0 for any time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._most = float(LEAST) if seconds else math.inf

    @property
    def most(self) -> float:
        """Most records that each task of the next generation should read."""
        return self._most

    def learn(self, seconds: float, *, is_cut: bool) -> None:
        """A generation has ended.

        Args:
            seconds: how long it lasted.
            is_cut: whether it left records to the next one. One that did not says nothing of longer ones.
        """
        if not self._seconds or (seconds <= self._seconds and not is_cut):
            return
        factor = min(self._seconds / max(seconds, 0.001), _GROWTH)
        self._most = max(self._most * factor, LEAST)
