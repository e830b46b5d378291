"""The class a connector author writes: one task of a source connector."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sinksdk.support.hooks import check_hooks

if TYPE_CHECKING:
    from sinksdk.source.context import SourceTaskContext
    from sinksdk.source.records import RecordMetadata, SourceRecord


class SourceTask(ABC):
    """Reads records from somewhere; the runtime writes them to their topics, in transactions.

    Only :meth:`poll` must be written. The runtime calls::

        initialize → start → { poll … commit_record … commit } … → stop → stopped

    ``stop`` alone may come from another thread while ``poll`` runs, and while ``commit`` does. ``commit``
    and ``commit_record`` may come from another thread than ``poll`` too, with
    ``transaction.boundary=interval``: a transaction that is due does not wait until ``poll`` returns. Of
    all others, no two ever run at the same time.

    After ``initialize`` the runtime always calls ``stop`` and, last of all, ``stopped``: each once, whatever
    raised before. A task that is discarded earlier (its connector has a newer configuration) gets no call.
    """

    context: SourceTaskContext

    def __init_subclass__(cls, **options: Any) -> None:
        """Refuse hooks that could never take effect: coroutines, generators, misspelt names (TypeError)."""
        super().__init_subclass__(**options)
        check_hooks(cls, SourceTask)

    def initialize(self, context: SourceTaskContext) -> None:
        """Take the context; called once, first of all. The default keeps it as ``self.context``."""
        self.context = context

    def start(self, config: Any) -> None:  # noqa: B027 - a hook: doing nothing is a right answer
        """Open the source at the offsets that ``context.offset_storage_reader()`` returns.

        Predecessors that may still run are fenced: what they have not committed never will be.
        """

    @abstractmethod
    def poll(self) -> Sequence[SourceRecord] | None:
        """Read the next records, waiting for some if there are none now; None or nothing is fine too.

        Records of one source partition come in the order of their offsets. It may wait for ever as long as
        :meth:`stop` ends the waiting. It should not return at once without records, again and again.

        Raises:
            RetriableException: called again, after ``retry_after`` or a growing delay, as often as it takes.
            Exception: anything else ends the task; what is not committed is read again by the next one.
        """

    def commit(self) -> None:  # noqa: B027 - a hook
        """Called after a commit: all earlier records are in their topics, and their offsets with them.

        Once after each transaction. Here the source may discard what it no longer needs. A crash may prevent
        the call: what counts is what ``context.offset_storage_reader()`` returns next time.

        Raises:
            Exception: the task ends (in Connect it is only logged); nothing is read again for it.
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
        """Make a ``poll`` that waits return, and later ones return nothing.

        Once. From another thread while ``poll`` may be running, so it only signals: records that ``poll``
        still returns are written and committed, and what it uses is in use until :meth:`stopped`. After a
        failure it comes from the task's own thread. Raising is logged and changes nothing.
        """

    def stopped(self) -> None:  # noqa: B027 - a hook
        """Release everything (KIP-419). Once, last of all, on the task's own thread.

        No other call runs any more or comes later, in any thread, and the writer of the task's records is
        closed. It comes also after a failed ``initialize`` or ``start``, so what is released may be there
        only half. Raising is logged and changes nothing.
        """
