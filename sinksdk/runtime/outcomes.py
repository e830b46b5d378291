"""Outcomes of a generation's partitions or tasks, from their reports or their last progress."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace

from sinksdk.errors import ConnectException
from sinksdk.model.measures import TaskMeasures
from sinksdk.model.outcome import End, Failure, PartitionOutcome, SourceTaskOutcome, SourceTaskState
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import TopicPartition
from sinksdk.runtime.supervisor import Ended, Launches, Rows
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress, TaskProgress
from sinksdk.worker.task_result import SourceTaskResult, TaskResult

_LEAST = 0.05  # seconds; shorter phases are not logged


Launcher = Launches[TaskResult]
SourceLauncher = Launches[SourceTaskResult]


def outcomes_so_far(rows: Rows) -> list[PartitionOutcome]:
    return [partition for row in rows.values() for partition in row.partitions]


def source_progress(rows: Rows) -> Mapping[int, SourceProgress]:
    return {task: row.source for task, row in rows.items() if row.source is not None}


def partition_outcomes(ended: Ended[TaskResult], plan: GenerationPlan) -> list[PartitionOutcome]:
    known = {outcome.partition: outcome for outcome in outcomes_so_far(ended.rows)}
    outcomes = [outcome for report in ended.reports for outcome in report.outcomes]
    reported = {outcome.partition for outcome in outcomes}
    # Partitions without a report have failed with the job, unless it was cancelled or a required system is
    # unavailable.
    return outcomes + [
        _unreported(
            planned,
            known.get(planned.topic_partition),
            ended.broken.get(planned.topic_partition, ended.hung.get(task, ended.failure)),
        )
        for task, share in enumerate(plan.tasks)
        for planned in share.ranges
        if planned.topic_partition not in reported
    ]


def _unreported(
    planned: RangePlan, known: PartitionOutcome | None, failure: Failure | None
) -> PartitionOutcome:
    # Commits and counters are those of the last progress report.
    outcome = PartitionOutcome.unread(planned.topic_partition, planned.start, failure)
    if known is None:
        return outcome
    if failure is not None and failure.is_final:
        outcome = replace(outcome, position=known.position)
    return replace(
        outcome,
        committed=known.committed,
        visible=known.visible,
        counts=known.counts,
        records=known.records - known.tail,
    )


def source_outcomes(ended: Ended[SourceTaskResult], plan: GenerationPlan) -> list[SourceTaskOutcome]:
    reported = {report.task: report.outcome for report in ended.reports}
    return [
        reported.get(task) or _unreported_task(ended, ended.rows.get(task)) for task in range(len(plan.tasks))
    ]


def _unreported_task(ended: Ended[SourceTaskResult], row: TaskProgress | None) -> SourceTaskOutcome:
    known = row.source if row is not None and row.source is not None else SourceProgress(state="")
    failure = ended.failure
    if known.failure is not None:
        failure = Failure(ConnectException.__name__, known.failure, known.trace or known.failure)
    has_ended = known.state == SourceTaskState.STOPPED and row is not None and row.hangs is None
    if failure is not None:
        end = End.FAILED
    elif not ended.is_cancelled:
        end = End.ABANDONED
    else:
        end = End.STOPPED if has_ended else End.CANCELLED  # the report was lost with the job
    return SourceTaskOutcome(end, known.records, known.transactions, failure)


def next_offsets(plan: GenerationPlan, outcomes: Iterable[PartitionOutcome]) -> dict[TopicPartition, int]:
    committed = {outcome.partition: outcome.committed for outcome in outcomes if outcome.failure}
    return {
        planned.topic_partition: max(planned.start, committed[planned.topic_partition] or 0)
        for task in plan.tasks
        for planned in task.ranges
        if planned.start < planned.end and planned.topic_partition in committed
    }


def without_vanished_failures(
    outcomes: Sequence[PartitionOutcome],
    gone: Container[str],
    overtaken: Container[TopicPartition] = (),
) -> list[PartitionOutcome]:
    """Clear failures caused by deleted topics or retention, so that they use up no restart attempt."""
    # One such failure fails the whole job.
    return [
        replace(outcome, failure=None)
        if outcome.failure
        and (outcome.failure.shared or outcome.partition.topic in gone or outcome.partition in overtaken)
        else outcome
        for outcome in outcomes
    ]


def closing_durations(seconds: float, tasks: Mapping[int, TaskMeasures]) -> str:
    spent = {
        task: sum(measures.closing_seconds.values()) for task, measures in tasks.items() if measures.closings
    }
    if not spent:
        return f"{seconds:.1f} s; all tasks had finished before"
    slowest = max(spent, key=lambda task: spent[task])
    phases = tasks[slowest].closing_seconds
    parts = [f"{phase} {took:.1f} s" for phase, took in phases.items() if took >= _LEAST]
    rest = seconds - spent[slowest]
    if rest >= _LEAST:
        parts.append(f"Spark and the driver {rest:.1f} s")
    return f"{seconds:.1f} s; the slowest, task {slowest}: {', '.join(parts) or 'no long phase'}"
