"""Outcomes of a sink's partitions and of source tasks in one generation."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, PlainSerializer

from sinksdk.errors import ConnectException, describe
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

    def on_clock(self, ahead: float) -> Retry:
        """The same retry with its times on a clock that is ahead by so many seconds."""
        return replace(self, since=self.since + ahead, next_attempt=self.next_attempt + ahead)


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
            SECRETS.hide(describe(error)),
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
    """The outcome of one partition in one generation: so far, while its task runs, or at its end.

    Args:
        committed: next offset to read after the last commit; None: nothing was ever committed.
        position: offset after the last record the task accepted.
        records: records the task accepted in this generation, and those that its earlier attempts committed.
        tail: of ``records``, those above the commit: they are read again.
        read_to: offset up to which its range was read; beyond ``position`` where it ended in gaps.
        failure: why it ended early, None: it did not fail.
        counts: the task's counters (``context.count``).
        visible: next offset to read after the last commit that is published; None: unknown.
        read_from: offset from which its range was read, by the first attempt; None: it was never opened.
        moved_to: the position that the task requested below the commit, which was moved back to it.
        earlier: of ``records``, those of earlier attempts.
        rate: records per second since the last report.
    """

    partition: TopicPartition
    committed: int | None
    position: int
    records: int
    tail: int
    read_to: int
    failure: Failure | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    visible: int | None = None
    read_from: int | None = None
    moved_to: int | None = None
    earlier: int = 0
    rate: float = 0.0

    def on_clock(self, ahead: float) -> PartitionOutcome:
        """The same outcome with its times on a clock that is ahead by so many seconds."""
        failure = self.failure
        if failure is None or failure.retry is None:
            return self
        return replace(self, failure=replace(failure, retry=failure.retry.on_clock(ahead)))

    @classmethod
    def unread(
        cls, partition: TopicPartition, start: int, failure: Failure | None, committed: int | None = None
    ) -> PartitionOutcome:
        """The outcome of a partition that was never opened."""
        return cls(partition, committed, start, 0, 0, start, failure)


def as_report(outcome: PartitionOutcome) -> dict[str, Any]:
    """The form of an outcome in the stored report of a running task, which has fewer fields."""
    failure = outcome.failure
    return {
        "topic": outcome.partition.topic,
        "partition": outcome.partition.partition,
        "position": outcome.position,
        "committed": outcome.committed,
        "records": outcome.records,
        "counts": dict(outcome.counts),
        "failure": failure.message if failure else None,
        "rate": outcome.rate,
        "tail": outcome.tail,
        "visible": outcome.visible,
        "is_final": failure is not None and failure.is_final,
        "retry": asdict(failure.retry) if failure and failure.retry else None,
    }


def _from_report(report: object) -> object:
    """The fields of an outcome from those of its report; pydantic checks them and ignores others."""
    if not isinstance(report, dict):
        return report
    fields: dict[str, object] = {"tail": 0, **report}
    fields["partition"] = report.get("topic"), report.get("partition")
    fields["read_to"] = report.get("position")
    if (message := report.get("failure")) is not None:
        fields["failure"] = {
            "kind": ConnectException.__name__,
            "message": message,
            "trace": message,
            "is_final": report.get("is_final", False),
            "retry": report.get("retry"),
        }
    return fields


ReportedOutcome = Annotated[PartitionOutcome, BeforeValidator(_from_report), PlainSerializer(as_report)]
"""An outcome as read from the report of a running task."""


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
