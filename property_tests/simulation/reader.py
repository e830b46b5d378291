"""Read the target of simulated sources: each row must come once, in order, and none from a zombie."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from property_tests.simulation.places import Place, Row
from property_tests.simulation.tables import TOPIC, Tables
from property_tests.simulation.world import Process, World
from sinksdk.source import SourceRecord


class Attempt(NamedTuple):
    generation: int
    number: int


class Reader:
    def __init__(
        self,
        world: World,
        place: Place,
        tables: Tables,
        connector: str,
        is_written: Callable[[int], bool],
    ) -> None:
        self._world = world
        self._place = place
        self._tables = tables
        self._connector = connector
        self._is_written = is_written
        self.rows = 0
        self.next: dict[str, int] = defaultdict(int)
        self.offsets: dict[str, int] = defaultdict(int)
        self.attempts: dict[Process, Attempt] = {}
        self.open: dict[Process, list[SourceRecord]] = {}
        # Tasks whose transactional ids each driver process has fenced since its claim.
        self.fences: dict[Process, list[int]] = defaultdict(list)
        self.refused: set[Process] = set()
        self.fencing_fails_until = 0.0
        self.claimed = 0
        self._owners: dict[str, Attempt] = {}
        self._holders: dict[int, Process] = {}
        self._overtaken: set[Process] = set()
        self._reads: dict[Process, set[str]] = defaultdict(set)
        place.on_commit = self.look

    def look(self) -> None:
        fresh = self._place.fresh()
        if fresh:
            self._judge(fresh)
        for position in self._place.positions(self._connector).values():
            self._judge_offset(str(position.partition["table"]), int(str(position.offset["row"])))

    def has_fenced(self, process: Process, task: int) -> None:
        self._holders[task] = process
        attempt = self.attempts.get(process)
        if attempt is None:
            self.fences[process].append(task)
        elif attempt.generation < self.claimed:
            self._overtaken.add(process)

    def has_read(self, process: Process, table: str) -> None:
        # From now on, no earlier task may write rows of this table.
        attempt = self.attempts[process]
        if process in self._overtaken:
            self._world.violation(f"{process.name} begins, and was overtaken before it had fenced anybody")
        for task, holder in self._holders.items():
            if holder.is_alive and table in self._reads[holder] and self.attempts[holder] < attempt:
                self._world.violation(
                    f"{table}: {process.name} reads on, and {holder.name} may still write as task {task}"
                )
        self._reads[process].add(table)
        self._owners[table] = max(self._owners.get(table, attempt), attempt)

    def is_complete(self) -> bool:
        """Return whether each row is visible or belongs to an aborted transaction."""
        return all(self.offsets[table] == length for table, length in self._tables.lengths.items())

    def check_end(self) -> None:
        self.look()
        for table, length in self._tables.lengths.items():
            if self.offsets[table] != length:
                self._world.violation(f"{table}: in the end {self.offsets[table]} of {length} rows are read")
        seen: dict[str, list[int]] = defaultdict(list)
        for row in self._place.rows(TOPIC):
            table, number = _parsed(row)
            seen[table].append(number)
        for table, length in self._tables.lengths.items():
            expected = [row for row in range(length) if self._is_written(row)]
            if seen[table] != expected:
                self._world.violation(f"{table}: in the end {seen[table]} are visible of {expected}")

    def _judge(self, fresh: Sequence[Row]) -> None:
        process = self._world.current.threads[0]
        sent = [(record.value or b"").decode() for record in self.open.get(process, ())]
        if sorted(row.value for row in fresh) != sorted(sent):
            self._world.violation(f"{[row.value for row in fresh]} are visible of a transaction of {sent}")
        self.open[process] = []  # the transaction is committed even if its response is lost
        self.rows += len(fresh)
        for row in fresh:
            table, number = _parsed(row)
            expected = self.next[table]
            while not self._is_written(expected):
                expected += 1
            if number != expected:
                self._world.violation(f"{table}: row {number} is visible, expected was row {expected}")
            self.next[table] = number + 1
            owner, attempt = self._owners.get(table), self.attempts.get(process)
            if attempt is None or owner is None or attempt < owner:
                self._world.violation(f"{table}: {attempt} commits row {number}, though {owner} has read on")

    def _judge_offset(self, table: str, offset: int) -> None:
        before, self.offsets[table] = self.offsets[table], offset
        if offset == before:
            return
        if offset < before:
            self._world.violation(f"{table}: the source offset went back from {before} to {offset}")
        if any(self._is_written(row) for row in range(self.next[table], offset)):
            self._world.violation(
                f"{table}: read on from {offset}, but only {self.next[table]} rows are visible"
            )
        if self.next[table] > offset:
            self._world.violation(f"{table}: {self.next[table]} rows are visible, but read on from {offset}")


def _parsed(row: Row) -> tuple[str, int]:
    table, number = row.value.split(":")
    return table, int(number)
