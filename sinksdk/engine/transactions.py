"""A source task's transactions: what is sent, how far the source was read by it, and who is told."""

from __future__ import annotations

import logging

from sinksdk.engine.outside import AuthorsCode, Persistence
from sinksdk.engine.record_checks import checked_position
from sinksdk.engine.writer import TransactionalWriter
from sinksdk.errors import FencedException
from sinksdk.source.positions import SourcePosition, as_json
from sinksdk.source.records import SourcePartition, SourceRecord
from sinksdk.source.task import SourceTask

log = logging.getLogger(__name__)


class SourceTransactions:
    """One transaction after the other through one writer; begun with its first record, not before.

    Args:
        task: told what is committed.
        writer: where records go.
        label: connector and task, for messages.
        persist: tries again what may yet succeed.
    """

    def __init__(
        self, task: SourceTask, writer: TransactionalWriter, *, label: str, persist: Persistence
    ) -> None:
        self._task = task
        self._writer = writer
        self._label = label
        self._persist = persist
        self._call = AuthorsCode(label)
        self._is_open = False
        self._sent: list[SourceRecord] = []
        self._positions: dict[str, SourcePosition] = {}
        self._last: tuple[SourcePartition, SourcePartition, str] | None = None
        self.records = 0
        """Records in transactions that were committed."""
        self.count = 0
        """Transactions that were committed."""

    def init(self) -> None:
        """Fence whoever had the writer's transactional id before."""
        self._persist("fencing its predecessors", self._writer.init)

    def send(self, record: SourceRecord) -> None:
        """Write a record, and remember how far the source is read with it.

        Raises:
            ConnectException: no record, or one that cannot be written.
        """
        position = checked_position(record, self._label)
        self._begin()
        self._persist("sending a record", self._writer.send, record)
        self._sent.append(record)
        self._positions[self._key(record.source_partition, position)] = position

    def commit(self) -> None:
        """Commit what is open, if anything is; then tell the task of each record, and of the whole."""
        if not self._is_open:
            return
        positions = list(self._positions.values())
        written = self._persist("committing a transaction", self._writer.commit, positions)
        sent = self._close()
        self.records += len(sent)
        self.count += 1
        for record, metadata in zip(sent, written, strict=True):
            self._call(self._task.commit_record, record, metadata)
        self._call(self._task.commit)

    def abort(self) -> None:
        """Abort what is open as the task asked for: its records are never seen, and never read again."""
        if not self._is_open:
            log.warning("%s: the task asked to abort a transaction without records; ignored", self._label)
            return
        positions = list(self._positions.values())
        self._persist("aborting a transaction", self._writer.abort)
        sent = self._close()
        self._begin()
        self._persist("committing offsets", self._writer.commit, positions)
        self._close()
        for record in sent:
            self._call(self._task.commit_record, record, None)
        self._call(self._task.commit)

    def give_up(self) -> None:
        """Abort what is open, if it can be: the next task reads it again."""
        if not self._is_open:
            return
        self._close()
        try:
            self._writer.abort()
        except FencedException:
            pass  # it is not ours any more, and its owner has aborted it
        except Exception as error:  # noqa: BLE001 - the rest must be closed, whatever the writer raises
            # What readers see does not change: whoever has the id next aborts it before it writes.
            log.warning("%s: its open transaction is left to its successor: %s", self._label, error)

    def _begin(self) -> None:
        if not self._is_open:
            self._persist("beginning a transaction", self._writer.begin)
            self._is_open = True

    def _close(self) -> list[SourceRecord]:
        sent = self._sent
        self._is_open, self._sent, self._positions = False, [], {}
        return sent

    def _key(self, given: SourcePartition, position: SourcePosition) -> str:
        """Of the position's partition; nearly always it is that of the record before."""
        if self._last is not None and self._last[0] is given and self._last[1] == position.partition:
            return self._last[2]
        key = as_json(position.partition)
        self._last = given, position.partition, key
        return key
