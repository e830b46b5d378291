"""What the engine needs of a place that records and source offsets are written to, in one transaction."""

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
    """Connect's ``<group>-<connector>-<task>``: the same for a task of every generation, which fences so."""
    return f"{group}-{name.connector}-{name.task}"


class TransactionalWriter(Protocol):
    """Writes as one transactional id. Not for two threads at a time.

    Every method may raise:
        RetriableException: nobody knows yet; the same call again is right, and only that.
        FencedException: somebody newer has this transactional id. Nothing more can be written, ever.
        ConnectException: it failed for good; the open transaction can only be aborted.
    """

    def init(self) -> None:
        """Fence all older writers of the id: whatever they have open is aborted, before this returns.

        Nothing outside is touched before it: no connection, no file.
        """
        ...

    def begin(self) -> None:
        """Begin a transaction."""
        ...

    def send(self, record: SourceRecord) -> None:
        """Write a record in it. It may be on its way for a while; what comes of it, :meth:`commit` tells."""
        ...

    def commit(
        self, positions: Sequence[SourcePosition], forget: Sequence[SourcePartition] = ()
    ) -> Sequence[RecordMetadata]:
        """Make the transaction's records visible and these positions durable: all of it or nothing.

        Args:
            positions: how far source partitions were read.
            forget: source partitions whose position is taken back: as if nothing of them had been read.

        Returns:
            Where each record sent since :meth:`begin` is now, in that order.
        """
        ...

    def abort(self) -> None:
        """Take back everything since :meth:`begin`; readers never see any of it."""
        ...

    def close(self) -> None:
        """Release every connection, thread and file. An open transaction is not committed. Idempotent."""
        ...


class CommittedOffsets(OffsetStorageReader):
    """Reads source offsets of one connector from where transactions put them."""

    @abstractmethod
    def positions(self) -> Sequence[SourcePosition]:
        """Of every source partition the last committed offset. Raises as :meth:`offsets`."""

    def close(self) -> None:
        """Release every connection, thread and file. Idempotent. The default has none."""


class Target(Protocol):
    """Where the records and offsets of sources go. Travels to executors, and holds no secret.

    Both methods may raise:
        ConfigException: the connector's own settings of it cannot be used.
    """

    def writer(self, config: SourceConnectorConfig, name: TaskName) -> TransactionalWriter:
        """What a task writes with. Nothing outside is touched yet."""
        ...

    def offsets(self, config: SourceConnectorConfig) -> CommittedOffsets:
        """What tells how far a connector's tasks have got. Likewise."""
        ...
