"""What a task reports to the driver: one row of text, whatever Spark version is in between."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pydantic import TypeAdapter

from sinksdk.engine import PartitionOutcome
from sinksdk.measures import TaskMeasures


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One task's end.

    Args:
        task: its number.
        attempt: the attempt that came to an end; 0 when nothing was opened.
        outcomes: what became of its partitions; empty when nothing was opened.
        peak_memory: largest resident size of its Python worker, in bytes.
        measures: what that attempt has measured.
    """

    task: int
    attempt: int
    outcomes: Sequence[PartitionOutcome]
    peak_memory: int = 0
    measures: TaskMeasures = field(default_factory=TaskMeasures)


_ADAPTER = TypeAdapter(TaskResult)


def to_row(result: TaskResult) -> str:
    """The result as text."""
    return _ADAPTER.dump_json(result).decode()


def from_rows(rows: Iterable[str]) -> list[TaskResult]:
    """Results from their texts, by task."""
    return sorted((_ADAPTER.validate_json(row) for row in rows), key=lambda result: result.task)
