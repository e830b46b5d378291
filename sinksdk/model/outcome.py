"""A generation reports these outcomes of a sink's partitions and of source tasks."""

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
    """A later generation retries a failed operation.

    In the engine times are on the task's monotonic clock, elsewhere since the epoch.
    """

    # Fields of newer versions are left out here, even inside a stored value that keeps those of its own.
    __pydantic_config__: ClassVar[Mapping[str, str]] = {"extra": "ignore"}

    since: float  # time of the first failure
    attempts: int
    next_attempt: float
    # The sink refused the record at this offset: accepting the record is progress. None: only a commit is.
    refused: int | None = None

    def on_clock(self, ahead: float) -> Retry:
        """Convert the times to a clock that is ``ahead`` by so many seconds."""
        return replace(self, since=self.since + ahead, next_attempt=self.next_attempt + ahead)


@dataclass(frozen=True, slots=True)
class Failure:
    """Failures survive pickling and JSON, unlike exceptions."""

    kind: str  # the exception's class
    message: str
    trace: str
    # The commit only waits to be published: the partition is opened without a back-off.
    at_once: bool = False
    shared: bool = False  # the job failed, perhaps not because of this partition
    is_final: bool = False  # no retry can help
    retry: Retry | None = None  # a later generation retries: a wait, not a failure

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
    """Spark cannot compute a record's transform. No retry can help: the record stays the same."""

    def __init__(self, key: str, cause: str, task: int | None = None, place: str = "") -> None:
        super().__init__(f"'{key}' fails for a record{place}: {cause}")
        self.key = key
        self.cause = cause  # Spark's message, beginning with its error class in brackets
        self.task = task

    def at(self, place: str) -> TransformFailure:
        placed = TransformFailure(self.key, self.cause, self.task, place)
        placed.__cause__ = self.__cause__
        return placed


@dataclass(frozen=True, slots=True)
class PartitionOutcome:
    partition: TopicPartition
    committed: int | None  # next offset to read; None: nothing was ever committed
    position: int  # next offset after the last accepted record
    records: int  # number of accepted records, including those that earlier attempts committed
    tail: int  # number of accepted records above the commit, which are read again
    read_to: int  # offset up to which the range was read; above ``position`` if no record follows that
    failure: Failure | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    visible: int | None = None  # offset up to which all records are published; None: unknown
    read_from: int | None = None  # offset at which the first attempt began; None: never opened
    moved_to: int | None = None  # position below the commit that the task requested
    earlier: int = 0  # number of records of earlier attempts
    rate: float = 0.0  # records per second since the last report

    def on_clock(self, ahead: float) -> PartitionOutcome:
        failure = self.failure
        if failure is None or failure.retry is None:
            return self
        return replace(self, failure=replace(failure, retry=failure.retry.on_clock(ahead)))

    @classmethod
    def unread(
        cls, partition: TopicPartition, start: int, failure: Failure | None, committed: int | None = None
    ) -> PartitionOutcome:
        return cls(partition, committed, start, 0, 0, start, failure)


def as_report(outcome: PartitionOutcome) -> dict[str, Any]:
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


class SourceTaskState(StrEnum):
    UNINITIALIZED = "UNINITIALIZED"  # no method was called; none is called if the task is abandoned
    INITIALIZED = "INITIALIZED"  # ``stop`` must be called from now on
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # polled records are committed or aborted
    STOPPED = "STOPPED"  # KIP-419 lacks this state, which tells the successor that the task is free


class End(StrEnum):
    STOPPED = "STOPPED"
    ABANDONED = "ABANDONED"  # superseded before ``initialize``, which is no failure
    FENCED = "FENCED"
    FAILED = "FAILED"  # the next task continues from the last commit
    CANCELLED = "CANCELLED"  # another task may have replaced it


@dataclass(frozen=True, slots=True)
class SourceTaskOutcome:
    end: End
    records: int = 0
    transactions: int = 0
    failure: Failure | None = None
