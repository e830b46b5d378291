"""The runtime as source tasks see it: committed offsets and transactions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from sinksdk.source.records import SourceOffset, SourcePartition, SourceRecord
from sinksdk.support.hooks import guard_methods


class OffsetStorageReader(ABC):
    """Reads offsets committed by the connector's earlier tasks from the system that holds their records."""

    @abstractmethod
    def offsets(self, partitions: Sequence[SourcePartition]) -> Sequence[SourceOffset | None]:
        """Last committed offset of each source partition, in this order; None if there never was one.

        Request many at once: each call reads all offsets that any task has committed so far.

        Raises:
            DataException: an argument cannot be a source partition (see :class:`SourceRecord`).
            RetriableException: no response, or other transactions are still open; call again.
            ConnectException: the offsets cannot be read; the message says why.
        """

    def offset(self, partition: SourcePartition) -> SourceOffset | None:
        """Last committed offset of one source partition. Raises as :meth:`offsets`."""
        return self.offsets([partition])[0]


class TransactionContext(ABC):
    """Ends the task's transactions, with ``transaction.boundary=connector`` (KIP-618).

    A request for a record takes precedence over one for the batch. Any thread may call it; a request between
    two polls applies to the batch that is polled next.
    """

    @abstractmethod
    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """Commit after this record, which must be of the next batch; without one, after the next batch.

        Raises:
            ValueError: an abort was requested there already.
        """

    @abstractmethod
    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """Abort after this record, which must be of the next batch; without one, after the next batch.

        None of the transaction's records becomes visible, and none is read again: their offsets are
        committed, in a transaction of their own. To have them read again, raise from ``poll``.

        Raises:
            ValueError: a commit was requested there already.
        """


class SourceTaskContext(ABC):
    """The runtime as a :class:`~sinksdk.source.SourceTask` sees it, given to ``initialize``."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError where a method is used as a boolean: it was not called."""
        super().__init_subclass__(**options)
        guard_methods(cls)

    @abstractmethod
    def configs(self) -> Mapping[str, str]:
        """The task's configuration as it was written: dotted names, references unresolved."""

    @abstractmethod
    def offset_storage_reader(self) -> OffsetStorageReader:
        """Reader of the offsets of earlier tasks. Call it in ``start`` or later, on the task's own thread."""

    def transaction_context(self) -> TransactionContext | None:
        """Ends transactions; None unless ``transaction.boundary=connector``."""
        return None
