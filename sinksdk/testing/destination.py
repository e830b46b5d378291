"""Something to write to: artefacts in memory, and every operation may fail as planned."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from sinksdk.errors import ConnectException
from sinksdk.records import SinkRecord
from sinksdk.testing.faults import DESTINATION, FaultPlan


class MemoryDestination:
    """What readers see (:attr:`visible`) and what they do not see yet (:attr:`staged`).

    Every operation is atomic and asks the fault plan. A real system has some of these; use those that
    yours has: objects that are overwritten (:meth:`write`), logs that are appended to (:meth:`append`),
    rows with keys (:meth:`upsert`), uploads or transactions (:meth:`begin`, :meth:`fill`,
    :meth:`publish`, :meth:`discard`).
    """

    def __init__(self, faults: FaultPlan | None = None) -> None:
        self.faults = faults or FaultPlan()
        """Asked before each operation, as ``"destination"``."""
        self.visible: dict[str, list[SinkRecord]] = {}
        """Artefacts that readers see, by name, in the order they appeared."""
        self.staged: dict[str, list[SinkRecord]] = {}
        """Artefacts that were begun and neither published nor discarded."""
        self._numbers = itertools.count()

    def write(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Make an artefact visible, replacing one of the same name."""
        rows = list(records)
        self.faults.run(DESTINATION, lambda: self.visible.__setitem__(name, rows))

    def append(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Add to a visible artefact, which is made where it is not there."""
        rows = list(records)
        self.faults.run(DESTINATION, lambda: self.visible.setdefault(name, []).extend(rows))

    def upsert(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Add to a visible artefact; a record with the coordinates of one that is there replaces it."""
        rows = list(records)

        def effect() -> None:
            kept = {_coordinates(record): record for record in self.visible.get(name, [])}
            self.visible[name] = list((kept | {_coordinates(record): record for record in rows}).values())

        self.faults.run(DESTINATION, effect)

    def begin(self) -> str:
        """Begin an artefact that readers do not see: its id, which is used once."""

        def effect() -> str:
            name = f"staged-{next(self._numbers)}"
            self.staged[name] = []
            return name

        return self.faults.run(DESTINATION, effect)

    def fill(self, name: str, records: Iterable[SinkRecord]) -> None:
        """Set the content of an artefact that was begun. Raises ConnectException for one that is gone."""
        rows = list(records)

        def effect() -> None:
            if name not in self.staged:
                raise ConnectException(f"{name} is not there: it was discarded or published before")
            self.staged[name] = rows

        self.faults.run(DESTINATION, effect)

    def publish(self, name: str) -> None:
        """Make an artefact visible, if it is not yet. Raises ConnectException for one that is gone."""

        def effect() -> None:
            if name in self.staged:
                self.visible[name] = self.staged.pop(name)
            elif name not in self.visible:
                raise ConnectException(f"{name} is not there: it was discarded before")

        self.faults.run(DESTINATION, effect)

    def discard(self, name: str) -> None:
        """Remove an artefact that was begun; nothing happens when it is not there."""
        self.faults.run(DESTINATION, lambda: self.staged.pop(name, None))

    def read_back(self) -> list[tuple[str, int, int, Any]]:
        """Topic, partition, offset and value of every record that readers see. Never fails."""
        return [
            (record.topic, record.partition, record.offset, record.value)
            for rows in self.visible.values()
            for record in rows
        ]

    def leftovers(self) -> Sequence[str]:
        """Artefacts with data that readers will never see unless somebody publishes them."""
        return [name for name, rows in self.staged.items() if rows]


def _coordinates(record: SinkRecord) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset
