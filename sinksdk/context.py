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
    """Why a closing ``pre_commit`` must flush partial batches."""

    # Stored in close requests: an older process that reads an unknown member asks for an upgrade.
    REBALANCE = "REBALANCE"
    """The partitions are about to be reassigned."""
    PAUSE = "PAUSE"
    """The connector is being paused."""
    STOP = "STOP"
    """The connector is being stopped."""
    DELETE = "DELETE"
    """The connector is being deleted."""
    SHUTDOWN = "SHUTDOWN"
    """The process that drives the connector is shutting down (Ctrl-C, SIGTERM)."""
    FAILURE = "FAILURE"
    """``put`` of this partition failed for good, or another partition's and the connector stops with it."""
    DUE = "DUE"
    """The batch is due: by time, by an explicit flush, or because nothing bounds a batch."""


class ErrantRecordReporter(ABC):
    """Reports records that a task cannot deliver (KIP-610)."""

    @abstractmethod
    def report(self, record: SinkRecord, error: BaseException) -> Future[None]:
        """Send a record to the dead letters.

        The returned future completes once the dead letter is durable. Before each commit of a partition the
        engine waits for all of its futures, including those of records reported in ``pre_commit``, so the
        task need not wait.

        Raises:
            ConnectException: ``errors.tolerance`` is ``none``.
        """


class SinkTaskContext(ABC):
    """The runtime as a :class:`~sinksdk.SinkTask` sees it; passed to ``initialize``.

    Call its methods only from the task's own thread, during a call from the runtime.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError where a method is used without being called: a method is always true."""
        super().__init_subclass__(**options)
        guard_methods(cls)

    def is_closing(self) -> bool:
        """Return True during the ``pre_commit`` before partitions are revoked, and False at all other times.

        Records that this ``pre_commit`` does not return as committed are read again, possibly by another
        task: flush partial batches now (KIP-275).
        """
        return False  # a default, so that a task works with every context

    def closing_reason(self) -> ClosingReason | None:
        """Return why this ``pre_commit`` is closing; None if it is not."""
        return None

    def deadline(self) -> float | None:
        """Return the seconds left to finish closing before the runtime cancels the job; None: no limit."""
        return None

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """Return the partitions that are open in this task."""

    @abstractmethod
    def committed(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        """Return the last commit of an assigned partition, None if it has none."""

    @abstractmethod
    def configs(self) -> Mapping[str, str]:
        """Return the task's configuration as written: dotted names, references unresolved.

        It includes the entries that the connector's ``task_configs`` returned for this task.
        """

    @abstractmethod
    def generation(self) -> int:
        """Return the number of this task's generation: 1, 2, 3 … per connector, never reused."""

    @abstractmethod
    def prepared(self, tokens: Mapping[TopicPartition, Sequence[Token | str]]) -> None:
        """Store tokens of prepared data durably, all in one write, so that a successor can discard the data.

        Call it after creating something outside (a multipart upload, a transaction) and before putting data
        into it: after a crash, nothing outside may contain data without a stored token.

        Raises:
            FencedException: a newer generation or attempt owns this task. Do not catch it.
            ConnectException: a partition is not open here, or the store does not respond after retries, or an
                earlier attempt has prepared or discarded an id. Ids must be unique for ever, such as
                ``uuid.uuid4().hex``, because a frozen predecessor may still discard an id. The attempt ends
                even if the task catches this error: it commits nothing more, and does not repeat ``put``.
        """

    @abstractmethod
    def offset(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Request another position. A sink that keeps its own offsets calls this method in ``open``.

        - **A later position:** the task skips the records before it. They are committed together with the
          records that follow, and the skip is logged.
        - **An earlier position:** the runtime closes the partition and moves its commit back, and the next
          generation reads from there. The move is logged. It is no failure, unless the
          partition moves back repeatedly without progress. A partition without a commit cannot move back.
        - **A position that the source does not have:** the partition fails and its commit does not move. A
          position after the source's end is such a position. One before its first record is, too, unless
          ``on.data.loss=skip``.

        Outside ``open``, only the position of the next record is accepted. Any other position fails the
        partition for this generation; the next generation starts it from its commit. The request is ignored
        with a warning if the partition is not open (in Connect it kills the task, KAFKA-10370). Connect's
        consumer, unlike sinksdk, seeks to any position at any time.
        """

    @abstractmethod
    def timeout(self, seconds: float) -> None:
        """Wait this many seconds before repeating a ``put`` that raised RetriableException. Applies once."""

    @abstractmethod
    def request_commit(self) -> None:
        """Request a periodic commit after the current call returns; also possible in ``pre_commit``."""

    @abstractmethod
    def fail(self, partition: TopicPartition, error: BaseException) -> None:
        """End one partition for this generation with its cause; the task's other partitions continue.

        For a task that works on several partitions in one call (``pre_commit``) and cannot raise for one of
        them alone. The next generation starts the partition again from its last commit. Offsets that the
        same ``pre_commit`` returns for the partition are still committed, and published.
        """

    def count(self, partition: TopicPartition, **amounts: int) -> None:  # noqa: B027 - a hook
        """Add to counters shown with the partition's progress: ``count(tp, files=1, bytes=1024)``.

        They are approximate: after a crash, amounts may be counted twice or not at all. ``files`` and
        ``bytes`` have columns of their own in the progress of ``sinksdk run``.
        """

    @abstractmethod
    def errant_record_reporter(self) -> ErrantRecordReporter:
        """Return the reporter for errant records; ``errors.tolerance`` decides what happens to them.

        (Connect's is null if neither a dead letter topic nor ``errors.log.enable`` is configured.)
        """
