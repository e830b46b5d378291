"""Where a source task stands, and how it ended."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sinksdk.engine.outcome import Failure


class SourceTaskState(StrEnum):
    """Which of its calls a source task has had, and which may come."""

    UNINITIALIZED = "UNINITIALIZED"
    """None yet. Given up now, it never hears of anything."""
    INITIALIZED = "INITIALIZED"
    """``initialize`` was called, perhaps ``start``. From now on ``stop`` and ``stopped`` are due."""
    RUNNING = "RUNNING"
    """``start`` has returned; ``poll``, ``commit`` and ``commit_record`` come, and ``stop`` may any time."""
    STOPPING = "STOPPING"
    """``stop`` was called. What was polled is finished, or given up."""
    STOPPED = "STOPPED"
    """``stopped`` has returned, or never was due. Nothing of the task is left."""


class End(StrEnum):
    """How a source task ended."""

    STOPPED = "STOPPED"
    """As it was asked to, everything committed."""
    ABANDONED = "ABANDONED"
    """It was not its turn (any more), before it had heard of anything. No failure: others go on."""
    FENCED = "FENCED"
    """A newer task has its transactional id."""
    FAILED = "FAILED"
    """Something failed for good; the next task goes on from what is committed."""
    CANCELLED = "CANCELLED"
    """It ended too late: nobody waits for it any more, and somebody else may be in its place."""


@dataclass(frozen=True, slots=True)
class SourceTaskOutcome:
    """What became of a source task.

    Args:
        end: how it ended.
        records: records in transactions that it committed.
        transactions: how many of these there were.
        failure: why it failed, or was fenced.
    """

    end: End
    records: int = 0
    transactions: int = 0
    failure: Failure | None = None
