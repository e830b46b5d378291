"""What a task reports to the driver: one row of text, whatever Spark version is in between."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from sinksdk.engine import PartitionOutcome
from sinksdk.engine.outcome import SourceTaskOutcome
from sinksdk.support.measures import TaskMeasures


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


@dataclass(frozen=True, slots=True)
class SourceTaskResult:
    """The end of a source's task.

    Args:
        task: its number.
        attempt: the attempt that came to an end; 0 when nothing was opened.
        outcome: how it ended.
        peak_memory: largest resident size of its Python worker, in bytes.
        measures: what that attempt has measured.
    """

    task: int
    attempt: int
    outcome: SourceTaskOutcome
    peak_memory: int = 0
    measures: TaskMeasures = field(default_factory=TaskMeasures)


R = TypeVar("R", TaskResult, SourceTaskResult)
"""What tasks of a kind report."""

_ADAPTERS: Final[Mapping[type, TypeAdapter[Any]]] = {
    # Made before workers are forked: to make one takes longer than to use it.
    TaskResult: TypeAdapter(TaskResult),
    SourceTaskResult: TypeAdapter(SourceTaskResult),
}


def to_row(result: R) -> str:
    """The result as text."""
    return _ADAPTERS[type(result)].dump_json(result).decode()


def from_rows(kind: type[R], rows: Iterable[str]) -> list[R]:
    """Results from their texts, by task."""
    results: list[R] = [_ADAPTERS[kind].validate_json(row) for row in rows]
    return sorted(results, key=lambda result: result.task)
