"""The class that implements one task of a source connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sinksdk.support.hooks import check_hooks

if TYPE_CHECKING:
    from sinksdk.source.context import SourceTaskContext
    from sinksdk.source.records import RecordMetadata, SourceRecord


class SourceTask(ABC):
    """Reads records from a source; the runtime writes them to their topics, in transactions.

    Only :meth:`poll` must be implemented. The runtime calls::

        initialize → start → { poll … commit_record … commit } … → stop → stopped

    ``stop`` alone may be called by another thread while ``poll`` or ``commit`` runs. With
    ``transaction.boundary=interval``, ``commit`` and ``commit_record`` may also be called by another thread
    than ``poll``: a transaction that is due does not wait until ``poll`` returns. No two of the other calls
    ever run at the same time.

    After ``initialize`` the runtime always calls ``stop`` and finally ``stopped``, each once, whatever was
    raised before. A task that is discarded earlier (its connector has a newer configuration) gets no call.
    """

    context: SourceTaskContext

    def __init_subclass__(cls, **options: Any) -> None:
        """Raise TypeError for hooks without effect: coroutines, generators, misspelt names."""
        super().__init_subclass__(**options)
        check_hooks(cls, SourceTask)

    def initialize(self, context: SourceTaskContext) -> None:
        """Receive the context, before any other call. The default keeps it as ``self.context``."""
        self.context = context

    def start(self, config: Any) -> None:  # noqa: B027 - a hook: doing nothing is a right answer
        """Open the source at the offsets that ``context.offset_storage_reader()`` returns.

        Earlier attempts that may still run are fenced: what they have not committed will never be committed.
        """

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """Read the next records, waiting for some if there are none; None or an empty list is allowed.

        Records of one source partition must come in the order of their offsets. The call may wait for ever as
        long as :meth:`stop` ends the waiting. It should not keep returning at once without records.

        Raises:
            RetriableException: called again, after ``retry_after`` or a growing delay, without a limit.
            Exception: any other ends the task; the next attempt reads again what is not committed.
        """

    def commit(self) -> None:  # noqa: B027 - a hook
        """Called after each commit: all earlier records are in their topics, and their offsets with them.

        The source may now discard what it no longer needs. A crash may prevent the call: only the result of
        ``context.offset_storage_reader()`` tells the next attempt what is committed.

        Raises:
            Exception: the task fails (Connect only logs it); nothing is read again for it.
        """

    def commit_record(  # noqa: B027 - a hook
        self, record: SourceRecord, metadata: RecordMetadata | None
    ) -> None:
        """Called after the commit of the record's transaction, in the order of ``poll``.

        Args:
            record: the one that ``poll`` returned.
            metadata: topic, partition and offset of the record; None if the task aborted its transaction.

        Raises:
            Exception: as :meth:`commit`.
        """

    def stop(self) -> None:  # noqa: B027 - a hook
        """Make a waiting ``poll`` return, and later ones return nothing.

        Called once, by another thread while ``poll`` may be running, so it only signals: records that
        ``poll`` still returns are written and committed, and its resources are in use until :meth:`stopped`.
        After a failure the task's own thread calls it. An exception is logged and changes nothing.
        """

    def stopped(self) -> None:  # noqa: B027 - a hook
        """Release all resources (KIP-419). Called once and last, by the task's own thread.

        No other call is running or will follow, in any thread, and the writer of the task's records is
        closed. It is also called after ``initialize`` or ``start`` failed, so some resources may not exist.
        An exception is logged and changes nothing.
        """
