"""Watches over one running generation of a source: what its tasks say, and how each of them ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from sinksdk.engine.outcome import End, Failure, SourceTaskOutcome, SourceTaskState
from sinksdk.errors import ConnectException
from sinksdk.runtime.supervisor import Rows, RunningTasks, Supervisor, TaskReport
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress, TaskProgress

Progress = Mapping[int, SourceProgress]
"""How far the tasks of a generation are, by number; those that have not begun are missing."""


class SourceResult(TaskReport, Protocol):
    """What one task of a source reported."""

    @property
    def outcome(self) -> SourceTaskOutcome:
        """How it ended."""
        ...


RunningSourceGeneration = RunningTasks[SourceResult]
"""The job of a source's generation."""


class SourceSupervisor(Supervisor[SourceResult]):
    """Runs one generation of a source to its end."""

    def outcomes(self, running: RunningSourceGeneration, plan: GenerationPlan) -> list[SourceTaskOutcome]:
        """Wait for the end.

        Returns:
            How each task ended, by number. One that reported nothing was cancelled, failed with the
            job, or never began.

        Raises:
            FencedException: a newer driver exists; the job was cancelled.
        """
        ended = self.run(running, plan)
        reported = {report.task: report.outcome for report in ended.reports}
        return [
            reported.get(task)
            or _unheard(ended.rows.get(task), ended.failure, is_cancelled=ended.is_cancelled)
            for task in range(len(plan.tasks))
        ]


def source_progress(rows: Rows) -> Progress:
    """How far the tasks of a source are."""
    return {task: row.source for task, row in rows.items() if row.source is not None}


def _unheard(row: TaskProgress | None, failure: Failure | None, *, is_cancelled: bool) -> SourceTaskOutcome:
    """Of a task that reported nothing: what is known from its progress, and what became of the job."""
    known = row.source if row is not None and row.source is not None else SourceProgress(state="")
    if known.failure is not None:
        failure = Failure(ConnectException.__name__, known.failure, known.trace or known.failure)
    has_ended = known.state == SourceTaskState.STOPPED and row is not None and row.hangs is None
    if failure is not None:
        end = End.FAILED
    elif not is_cancelled:
        end = End.ABANDONED
    else:
        end = End.STOPPED if has_ended else End.CANCELLED  # what it reported was lost with the job
    return SourceTaskOutcome(end, known.records, known.transactions, failure)
