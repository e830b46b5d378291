"""A task reports to the driver in one row of text, independent of the Spark version."""

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
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024  # Linux returns kilobytes


@dataclass(frozen=True, slots=True)
class TaskResult:
    task: int
    attempt: int  # counted from 1; 0: no partition was opened
    outcomes: Sequence[PartitionOutcome]  # empty: no partition was opened
    peak_memory: int = 0  # bytes
    measures: TaskMeasures = field(default_factory=TaskMeasures)

    @classmethod
    def not_created(
        cls, task: int, attempt: int, starts: Mapping[TopicPartition, int], error: Exception
    ) -> TaskResult:
        # The executors cannot import what the driver could: another attempt would not help.
        failure = Failure.of(error, is_final=isinstance(error, NotImportable))
        outcomes = [PartitionOutcome.unread(partition, start, failure) for partition, start in starts.items()]
        return cls(task, attempt if outcomes else 0, outcomes, peak_memory())


@dataclass(frozen=True, slots=True)
class SourceTaskResult:
    task: int
    attempt: int  # counted from 1; 0: the task was not started
    outcome: SourceTaskOutcome
    peak_memory: int = 0
    measures: TaskMeasures = field(default_factory=TaskMeasures)

    @classmethod
    def not_created(cls, task: int, attempt: int, error: BaseException, time: float) -> SourceTaskResult:
        outcome = SourceTaskOutcome(End.FAILED, failure=Failure.of(error))
        measures = TaskMeasures(errors=ErrorCounts(record_errors=1, last=time))
        return cls(task, attempt, outcome, peak_memory(), measures)


R = TypeVar("R", TaskResult, SourceTaskResult)

_ADAPTERS: Final[Mapping[type, TypeAdapter[Any]]] = {
    # Created at import, before workers are forked: creating an adapter takes longer than using it.
    TaskResult: TypeAdapter(TaskResult),
    SourceTaskResult: TypeAdapter(SourceTaskResult),
}


def to_row(result: R) -> str:
    return _ADAPTERS[type(result)].dump_json(result).decode()


def from_rows(kind: type[R], rows: Iterable[str]) -> list[R]:
    results: list[R] = [_ADAPTERS[kind].validate_json(row) for row in rows]
    return sorted(results, key=lambda result: result.task)
