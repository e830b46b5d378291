"""A task's report to the driver: one row of text, independent of the Spark version."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from pydantic import TypeAdapter

from sinksdk.model.measures import ErrorCounts, TaskMeasures
from sinksdk.model.outcome import End, Failure, PartitionOutcome, SourceTaskOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.transforms.plugins import NotImportable


def peak_memory() -> int:
    """Largest resident size of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The end of a sink's task.

    Args:
        attempt: counts from 1; 0 when nothing was opened.
        outcomes: of its partitions; empty when nothing was opened.
        peak_memory: largest resident size of its Python worker, in bytes.
    """

    task: int
    attempt: int
    outcomes: Sequence[PartitionOutcome]
    peak_memory: int = 0
    measures: TaskMeasures = field(default_factory=TaskMeasures)

    @classmethod
    def unmade(
        cls, task: int, attempt: int, starts: Mapping[TopicPartition, int], error: Exception
    ) -> TaskResult:
        """Of a task whose code or configuration failed before anything was read."""
        # What the driver could import, the executors lack: another attempt would do no better.
        failure = Failure.of(error, is_final=isinstance(error, NotImportable))
        outcomes = [PartitionOutcome.unread(partition, start, failure) for partition, start in starts.items()]
        return cls(task, attempt if outcomes else 0, outcomes, peak_memory())


@dataclass(frozen=True, slots=True)
class SourceTaskResult:
    """The end of a source's task.

    Args:
        attempt: counts from 1; 0 when nothing was opened.
        peak_memory: largest resident size of its Python worker, in bytes.
    """

    task: int
    attempt: int
    outcome: SourceTaskOutcome
    peak_memory: int = 0
    measures: TaskMeasures = field(default_factory=TaskMeasures)

    @classmethod
    def unmade(cls, task: int, attempt: int, error: BaseException, time: float) -> SourceTaskResult:
        """Of a task whose code or configuration failed, at that time, before anything was polled."""
        outcome = SourceTaskOutcome(End.FAILED, failure=Failure.of(error))
        measures = TaskMeasures(errors=ErrorCounts(record_errors=1, last=time))
        return cls(task, attempt, outcome, peak_memory(), measures)


R = TypeVar("R", TaskResult, SourceTaskResult)

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
