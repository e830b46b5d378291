"""Interfaces of the engine to the target of a source, and which tasks to fence first (KIP-618)."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from sinksdk.engine.options import TaskName
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.context import OffsetStorageReader
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata, SourcePartition, SourceRecord


def transactional_id(group: str, name: TaskName) -> str:
    """Connect's ``<group>-<connector>-<task>``: the same in every generation, for fencing."""
    return f"{group}-{name.connector}-{name.task}"


class TransactionalWriter(Protocol):
    """Writes with one transactional id. Not thread-safe.

    Every method may raise:
        RetriableException: the outcome is unknown; make the same call again, and no other.
        FencedException: a newer writer has this transactional id. Nothing more can be written.
        ConnectException: it failed for good; the open transaction can only be aborted.
    """

    def init(self) -> None:
        """Fence all older writers of the id: whatever they have open is aborted, before this returns.

        The first call that makes a connection or opens a file.
        """
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def send(self, record: SourceRecord) -> None:
        """Write a record in the transaction, asynchronously; :meth:`commit` raises if that fails."""
        ...

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        """Make the transaction's records visible and these positions durable: all of it or nothing.

        Args:
            positions: how far source partitions were read.
            forget: source partitions whose position is removed, as if they had never been read.

        Returns:
            Topic, partition and offset of each record sent since :meth:`begin`, in that order.
        """
        ...

    def abort(self) -> None:
        """Abort everything since :meth:`begin`; readers never see any of it."""
        ...

    def close(self) -> None:
        """Release every connection, thread and file. An open transaction is not committed. Idempotent."""
        ...


class CommittedOffsets(OffsetStorageReader):
    """Reads the source offsets of one connector that its transactions have committed."""

    @abstractmethod
    def positions(self) -> Sequence[SourcePosition]:
        """The last committed offset of every source partition. Raises as :meth:`offsets`."""

    def close(self) -> None:
        """Release every connection, thread and file. Idempotent. The default has none."""


class Target(Protocol):
    """The target of sources' records and offsets. Pickled to executors; holds no secret.

    Both methods may raise:
        ConfigException: the connector's own settings of it cannot be used.
    """

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        """A writer of a task; it connects when it is used."""
        ...

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        """A reader of committed offsets; it connects when it is used."""
        ...


class FencingRound(NamedTuple):
    """The fencing before the tasks of a new configuration start.

    Args:
        fence: numbers of the tasks whose transactional ids are fenced.
        record: the task count to write once all of them are fenced; None: write nothing.
    """

    fence: range
    record: int | None


def fencing_round(*, is_pending: bool, recorded: int | None, tasks: int) -> FencingRound:
    """Decide on a round of fencing.

    Args:
        is_pending: whether there are task configurations after the latest record (or no record yet): only
            then uncounted tasks are about to start.
        recorded: the task count of the latest record; None: there is no record. It outlives the deletion of
            the connector, so that one created again is fenced against its former tasks.
        tasks: how many tasks are about to start; 0: the connector is stopped.

    Returns:
        Nothing to fence and to write if nothing is pending. Otherwise as many ids as were recorded, not as
        many as will run, and the new count. A single task that stays a single task fences itself when it
        begins its transactions. If fencing fails, the new count must not be written.
    """
    if not is_pending:
        return FencingRound(range(0), None)
    if recorded is None or (recorded == 1 and tasks == 1):
        return FencingRound(range(0), tasks)
    return FencingRound(range(recorded), tasks)


def fence(target: Target, config: SourceConnectorConfig, task: int) -> None:
    """Fence all writers of this task: their open transaction is aborted, and they can write nothing more.

    It uses the connector's own settings, so that its user needs no further rights.

    Raises:
        RetriableException: the outcome is unknown.
        ConnectException: it cannot be done.
    """
    writer = target.writer(config, TaskName(config.name, task))
    try:
        writer.init()
    finally:
        writer.close()
