"""Something to read from: lines in memory, and every look may fail as planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from sinksdk.testing.faults import FaultPlan

ORIGIN: Final = "origin"
"""Operations of what the source reads from."""

_PARTS: Final[Mapping[str, int]] = {"a": 6, "b": 4, "c": 3}


class MemoryOrigin:
    """Parts with lines, which can be read from any place, or be taken and acknowledged as from a queue."""

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.faults = faults or FaultPlan()
        """Asked before each operation, as ``"origin"``."""
        self.parts = {part: [f"{part}-{n}".encode() for n in range(size)] for part, size in _PARTS.items()}
        """Lines by part; more may be added at any time."""
        self.forgotten: Counter[str] = Counter()
        """Of each part, how many lines cannot be read any more."""

    def everything(self) -> list[bytes]:
        """All lines there ever were: what a source of all parts is expected to give."""
        return [line for lines in self.parts.values() for line in lines]

    def read(self, part: str, start: int, most: int = 3) -> Sequence[bytes]:
        """Lines of a part from a place on; nothing from where it is forgotten."""

        def look() -> Sequence[bytes]:
            return self.parts[part][start : start + most] if start >= self.forgotten[part] else ()

        return self.faults.run(ORIGIN, look)

    def forget(self, part: str, end: int) -> None:
        """Lines before this place are not needed any more."""

        def effect() -> None:
            self.forgotten[part] = max(self.forgotten[part], end)

        self.faults.run(ORIGIN, effect)
