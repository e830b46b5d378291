"""The runtime's interface for sink tasks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from sinksdk.support.hooks import guard_methods

if TYPE_CHECKING:
    from sinksdk.offsets import OffsetAndMetadata, Token, TopicPartition
    from sinksdk.records import SinkRecord


class ClosingReason(StrEnum):
    """Why partial batches are flushed now."""

    # Stored with a close request: an older process that reads a member it does not know asks to be upgraded.
    REBALANCE = "REBALANCE"
    """The partitions are about to be reassigned."""
    PAUSE = "PAUSE"
    """The connector is being paused."""
    STOP = "STOP"
    """The connector is being stopped."""
    DELETE = "DELETE"
    """The connector is being deleted."""
    SHUTDOWN = "SHUTDOWN"
    """The process that drives the connector ends (Ctrl-C, SIGTERM)."""
    FAILURE = "FAILURE"
    """This partition's ``put`` failed for good, or another partition and the connector with it."""
    DUE = "DUE"
    """The available records are due by time, by an explicit flush, or because nothing bounds a batch."""


class ErrantRecordReporter(ABC):
    """Reports records that a task cannot deliver (KIP-610)."""

    @abstractmethod
    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Send a record to the dead letters.

        The future is done once the record is durable there. The engine waits for all futures of a
        partition before that partition's next commit, also for those of records that the ``pre_commit``
        itself has reported. So a task need not.

        Raises:
            ConnectException: ``errors.tolerance`` is ``none``: bad records are not tolerated.
        """


class SinkTaskContext(ABC):
    """The runtime as a :class:`~sinksdk.SinkTask` sees it, given to ``initialize``.

    All methods are for the task's own thread, inside a call from the runtime.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Methods that are used without being called raise TypeError: their truth says nothing."""
        super().__init_subclass__(**options)
        guard_methods(cls)

    def is_closing(self) -> bool:
        """True during exactly the ``pre_commit`` before partitions are revoked, False at all other times.

        Whatever that call does not return as committed will be read again, possibly by another
        task: flush partial batches now (KIP-275). The default is False, so that a task works with any
        context.
        """
        return False

    def closing_reason(self) -> ClosingReason | None:
        """Why this ``pre_commit`` is closing; None when it is not."""
        return None

    def deadline(self) -> float | None:
        """Seconds left to finish closing until the runtime cancels the job, or None for no limit."""
        return None

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that are open in this task now."""

    @abstractmethod
    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """The last commit of an assigned partition, None if it never had one."""

    @abstractmethod
    def configs(self) -> Mapping[str, str]:
        """The task's configuration as it was written: dotted names, references unresolved.

        What the connector's ``task_configs`` has returned for this task is in it.
        """

    @abstractmethod
    def generation(self) -> int:
        """Number of the generation this task runs in: 1, 2, 3 … per connector, never reused."""

    @abstractmethod
    def prepared(self, tokens: Mapping[TopicPartition, Sequence[Token | str]]) -> None:
        """Record tokens of things begun outside, durably: a successor may discard them. One write for all.

        Call it after beginning something outside (a multipart upload, a transaction) and before
        putting data into it: what a crash leaves behind without a token must be empty.

        Raises:
            FencedException: a newer generation or attempt owns this task. Do not catch it.
            ConnectException: a partition that is not open here; an id that an earlier attempt prepared, or
                that was discarded (a frozen predecessor may be about to discard it: ids must be unique for
                ever, such as with ``uuid.uuid4().hex``); or the store does not respond, after retries.
                Then the attempt is over, whatever catches it: no more commits, ``put`` is not repeated.
        """

    @abstractmethod
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Request another position, in ``open``: for a sink that keeps its own offsets.

        In ``open``, a later position skips the records before it; they are committed with those that follow.
        For an earlier one the runtime closes the partition, moves its commit back, and the next generation
        begins there: no failure, unless that happens again and again. Both are logged. Only an existing
        commit can move back. (Connect's consumer seeks to any position at any time.)

        A position that the source does not have ends the partition with a failure and moves nothing: one
        after its end, and, unless ``on.data.loss=skip``, one before its first record.

        In another method a position other than the next record's ends the partition for this generation with
        a failure, and the next one starts it from its commit. Outside an open partition it is ignored with
        a warning (in Connect it kills the task, KAFKA-10370).
        """

    @abstractmethod
    def timeout(self, seconds: float) -> None:
        """Wait this long before the next attempt at a ``put`` that raised RetriableException. One-shot."""

    @abstractmethod
    def request_commit(self) -> None:
        """Request a periodic commit as soon as the current call returns, also from ``pre_commit``."""

    @abstractmethod
    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        """End one partition for this generation with its cause; the task's others continue.

        For a task that works on several partitions in one call (``pre_commit``) and cannot raise
        for one of them alone. The next generation starts the partition again from its last commit: what
        the same ``pre_commit`` returns for the partition is still committed, and published.
        """

    def count(self, partition: TopicPartition, **amounts: int) -> None:  # noqa: B027 - a hook
        """Add to counters shown with the partition's progress: ``count(tp, files=1, bytes=1024)``.

        They inform only: a crash may count twice or not at all. ``files`` and ``bytes`` have columns of
        their own in the progress of ``sinksdk run``.
        """

    @abstractmethod
    def errant_record_reporter(self) -> ErrantRecordReporter:
        """The reporter for errant records; ``errors.tolerance`` decides what happens to them.

        (Connect's is null if neither a dead letter topic nor ``errors.log.enable`` is configured.)
        """
