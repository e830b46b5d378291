"""The engine writes a source's records through these interfaces, and fences as KIP-618 says."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Protocol

from sinksdk.engine.options import TaskName
from sinksdk.source.config import SourceConnectorConfig
from sinksdk.source.context import OffsetStorageReader
from sinksdk.source.positions import SourcePosition
from sinksdk.source.records import RecordMetadata, SourcePartition, SourceRecord


def transactional_id(group: str, name: TaskName) -> str:
    # The id has Connect's form, and is the same in every generation, so that fencing works.
    return f"{group}-{name.connector}-{name.task}"


class TransactionalWriter(Protocol):
    """A writer has one transactional id, and is not thread-safe.

    Every method may raise:
        RetriableException: the outcome is unknown; make the same call again, and no other.
        FencedException: a newer writer has this transactional id.
        ConnectException: the open transaction can only be aborted.
    """

    def init(self) -> None:
        """Connect, fence all older writers of the id, and abort their open transactions."""
        ...

    def begin(self) -> None: ...

    def send(self, record: SourceRecord) -> None:
        """Write a record asynchronously; :meth:`commit` raises if that fails."""
        ...

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        """Make the records visible and the positions durable: all of it or nothing.

        The positions of ``forget`` are removed. Return the metadata of each record, in order.
        """
        ...

    def abort(self) -> None: ...

    def close(self) -> None:
        """Release everything; an open transaction is not committed. Idempotent."""
        ...


class CommittedOffsets(OffsetStorageReader):
    @abstractmethod
    def positions(self) -> Sequence[SourcePosition]: ...

    def close(self) -> None: ...


class Target(Protocol):
    """Spark pickles the target of a source to executors; it connects on use, and holds no secret."""

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter: ...

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets: ...


def tasks_to_fence(*, is_pending: bool, recorded: int | None, tasks: int) -> range:
    """Return the numbers of the tasks whose transactional ids are fenced before tasks start.

    Args:
        is_pending: task configurations are newer than the record: uncounted tasks are about to start.
        recorded: task count; it outlives a deleted connector, to fence its tasks if it is created again.
        tasks: how many tasks are about to start; 0: the connector is stopped.
    """
    # A task that was and stays the only one fences its predecessor when it begins its transactions.
    if not is_pending or recorded is None or (recorded == 1 and tasks == 1):
        return range(0)
    # The recorded tasks may still run, however many tasks are about to start.
    return range(recorded)


def fence(target: Target, config: SourceConnectorConfig, task: int) -> None:
    # The client has the connector's own settings, so that its user needs no further rights.
    writer = target.writer(config, TaskName(config.name, task))
    try:
        writer.init()
    finally:
        writer.close()
