"""Outcomes of a sink's partitions and of source tasks in one generation."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, ClassVar

from sinksdk.errors import ConnectException, said
from sinksdk.offsets import TopicPartition
from sinksdk.support.confidential import SECRETS


@dataclass(frozen=True, slots=True)
class Retry:
    """A failure that may pass, left to a later generation. Survives pickling and JSON.

    The engine has its times on the task's clock; outside of a task, and in the store, they are seconds since
    the epoch.

    Args:
        since: when it first failed.
        attempts: how often it has failed.
        refused: offset of the first record that was refused: its success is progress. None: only a commit is.
    """

    # Fields of newer versions are left out, also within a value that keeps those of its own.
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore"}

    since: float
    attempts: int
    next_attempt: float
    refused: int | None = None

    def moved(self, seconds: float) -> Retry:
        """The same on a clock that is ahead by so much."""
        return replace(self, since=self.since + seconds, next_attempt=self.next_attempt + seconds)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a partition ended before its range did; survives pickling and JSON, as exceptions do not.

    Args:
        kind: name of the exception's class.
        message: of the exception.
        trace: its stack trace, with causes.
        at_once: the next generation opens the partition without a back-off (its commit is durable
            and only waits to be published).
        shared: the whole job failed, and this partition with it; it may not be the cause.
        is_final: no retry can help, so the connector fails at once.
        retry: a retriable failure with time left: a later generation retries. It counts as a wait, not as a
            failure.
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
            SECRETS.hide(said(error)),
            SECRETS.hide("".join(traceback.format_exception(error))),
            at_once,
            shared,
            is_final,
            retry,
        )


class TransformFailure(ConnectException):
    """Spark cannot compute what a transform makes of a record. No retry can help: the record stays the same.

    Args:
        key: of the configuration.
        cause: Spark's message, which begins with its class of errors in brackets.
        task: number of the task that has read the record, if known.
        place: where the record is, in words.
    """

    def __init__(self, key: str, cause: str, task: int | None = None, place: str = "") -> None:
        super().__init__(f"'{key}' fails for a record{place}: {cause}")
        self.key = key
        self.cause = cause
        self.task = task

    def at(self, place: str) -> TransformFailure:
        """The same, with a place."""
        told = TransformFailure(self.key, self.cause, self.task, place)
        told.__cause__ = self.__cause__
        return told


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    """Outcome of one partition in one generation.

    Args:
        committed: next offset to read after the last commit; None if it never had one.
        delivered: offset after the last record the task accepted.
        records: records the task accepted in this generation, and those that its earlier attempts committed.
        tail: records accepted above the commit: what will be read again.
        read_to: offset up to which its range was read; beyond ``delivered`` where it ended in gaps.
        failure: why it ended early, None when it did not fail.
        counts: the task's counters (``context.count``).
        visible: next offset to read after the last commit that is published; None if that is not known.
        read_from: offset from which its range was read, by the first attempt; None if it was never opened.
        moved_to: the position that the task requested below the commit, which was moved back to it.
        earlier: of ``records``, those of earlier attempts.
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
    earlier: int = 0

    def moved(self, seconds: float) -> PartitionOutcome:
        """The same, its times on a clock that is ahead by so much."""
        failure = self.failure
        if failure is None or failure.retry is None:
            return self
        return replace(self, failure=replace(failure, retry=failure.retry.moved(seconds)))

    def reported(self) -> dict[str, Any]:
        """In the names of a task's report, ``PartitionProgress``: all of it but the rate."""
        return {
            "topic": self.partition.topic,
            "partition": self.partition.partition,
            "position": self.delivered,
            "committed": self.committed,
            "records": self.records,
            "counts": dict(self.counts),
            "failure": self.failure.message if self.failure else None,
            "tail": self.tail,
            "visible": self.visible,
            "is_final": self.failure is not None and self.failure.is_final,
            "retry": self.failure.retry if self.failure else None,
        }

    @classmethod
    def unread(
        cls, partition: TopicPartition, start: int, failure: Failure | None, committed: int | None = None
    ) -> PartitionOutcome:
        """Of a partition that was never opened."""
        return cls(partition, committed, start, 0, 0, start, failure)


class SourceTaskState(StrEnum):
    """A source task's life cycle: which of its methods were called, and which may be called next."""

    UNINITIALIZED = "UNINITIALIZED"
    """None yet. If it is abandoned now, none is called."""
    INITIALIZED = "INITIALIZED"
    """``initialize`` was called, perhaps ``start``. ``stop`` and ``stopped`` will follow."""
    RUNNING = "RUNNING"
    """``start`` has returned; ``poll``, ``commit`` and ``commit_record`` follow, and ``stop`` at any time."""
    STOPPING = "STOPPING"
    """``stop`` was called. The polled records are committed or aborted."""
    STOPPED = "STOPPED"
    """``stopped`` has returned, or was not required."""


class End(StrEnum):
    """How a source task ended."""

    STOPPED = "STOPPED"
    """Stopped on request, everything committed."""
    ABANDONED = "ABANDONED"
    """It was superseded before ``initialize``. No failure: other tasks continue."""
    FENCED = "FENCED"
    """A newer task has its transactional id."""
    FAILED = "FAILED"
    """Something failed for good; the next task continues from the last commit."""
    CANCELLED = "CANCELLED"
    """It ended after its time-out: the driver no longer waits, and another task may have replaced it."""


@dataclass(frozen=True, slots=True)
class SourceTaskOutcome:
    """Outcome of a source task."""

    end: End
    records: int = 0
    transactions: int = 0
    failure: Failure | None = None
