"""What became of one partition of a sink, or of one source task, in one generation."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from sinksdk.records import TopicPartition
from sinksdk.support.confidential import SECRETS
from sinksdk.support.retry import Retry


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a partition ended before its range did; survives pickling and JSON, as exceptions do not.

    Args:
        kind: name of the exception's class.
        message: what it said.
        trace: its stack trace, with causes.
        at_once: the next generation opens the partition without a back-off (its commit is durable
            and only waits to be published).
        shared: the whole job failed, and this partition with it; it may not be its own doing.
        is_final: trying again is in vain, so the connector fails with it at once.
        retry: it may pass, and there is time left to try it again: a later generation does. That is a wait,
            and does not count as a failure.
    """

    kind: str
    message: str
    trace: str
    at_once: bool = False
    shared: bool = False
    is_final: bool = False
    retry: Retry | None = None

    @classmethod
    def of(
        cls,
        error: BaseException,
        *,
        at_once: bool = False,
        shared: bool = False,
        is_final: bool = False,
        retry: Retry | None = None,
    ) -> Failure:
        """Describe an exception, without secrets that it quotes."""
        return cls(
            type(error).__name__,
            SECRETS.hide(str(error)) or type(error).__name__,
            SECRETS.hide("".join(traceback.format_exception(error))),
            at_once,
            shared,
            is_final,
            retry,
        )


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """What became of one partition in one generation.

    Args:
        committed: next offset to read after the last commit; None if it never had one.
        delivered: offset after the last record the task accepted.
        records: records the task accepted in this generation.
        tail: records accepted above the commit: what will be read again.
        read_to: offset up to which its range was read; beyond ``delivered`` where it ended in gaps.
        failure: why it ended early, None when it did not fail.
        counts: what the task counted (``context.count``).
        visible: next offset to read after the last commit that is published; None if that is not known.
        read_from: offset from which its range was read; None if it was never opened.
        moved_to: the task asked for this position, below the commit, which has gone back to it.
    """

    partition: TopicPartition
    committed: int | None
    delivered: int
    records: int
    tail: int
    read_to: int
    failure: Failure | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    visible: int | None = None
    read_from: int | None = None
    moved_to: int | None = None

    def moved(self, seconds: float) -> PartitionOutcome:
        """The same, its times on a clock that is ahead by so much."""
        failure = self.failure
        if failure is None or failure.retry is None:
            return self
        return replace(self, failure=replace(failure, retry=failure.retry.moved(seconds)))

    @classmethod
    def unread(
        cls, partition: TopicPartition, start: int, failure: Failure | None, committed: int | None = None
    ) -> PartitionOutcome:
        """Of a partition that was never opened."""
        return cls(partition, committed, start, 0, 0, start, failure)


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
    """What became of a source task."""

    end: End
    records: int = 0
    transactions: int = 0
    failure: Failure | None = None
