"""A source task's transactions: what is sent, how far the source was read by it, and who is told."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sinksdk.engine.known_positions import KnownPositions
from sinksdk.engine.outside import AuthorsCode, Persistence
from sinksdk.engine.record_checks import checked_position
from sinksdk.engine.source_measures import SourceTaskMeasures
from sinksdk.engine.writer import TransactionalWriter
from sinksdk.errors import FencedException
from sinksdk.source.positions import SourcePosition, as_json
from sinksdk.source.records import RecordMetadata, SourcePartition, SourceRecord
from sinksdk.source.task import SourceTask
from sinksdk.support.measures import Phase

log = logging.getLogger(__name__)


class SourceTransactions:
    """One transaction after the other through one writer; begun with its first record, not before.

    Args:
        task: told what is committed.
        writer: where records go.
        label: connector and task, for messages.
        persist: tries again what may yet succeed.
        measures: counts and times transactions.
        known: learns how far the source was read.
    """

    def __init__(
        self,
        task: SourceTask,
        writer: TransactionalWriter,
        *,
        label: str,
        persist: Persistence,
        measures: SourceTaskMeasures,
        known: KnownPositions,
    ) -> None:
        self._task = task
        self._writer = writer
        self._label = label
        self._persist = persist
        self._measures = measures
        self._known = known
        self._call = AuthorsCode(label)
        self._is_open = False
        self._sent: list[SourceRecord] = []
        self._positions: dict[str, SourcePosition] = {}
        self._last: tuple[SourcePartition, SourcePartition, str] | None = None

    def init(self) -> None:
        """Fence whoever had the writer's transactional id before."""
        with self._measures.phase(Phase.FENCE):
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
        positions = self._positions
        with self._measures.offset_commit(), self._measures.phase(Phase.COMMIT):
            written = self._persist("committing a transaction", self._writer.commit, list(positions.values()))
        sent = self._close()
        self._measures.committed(len(sent))
        self._known.committed(positions)
        self._tell(sent, written)

    def abort(self) -> None:
        """Abort what is open as the task asked for: its records are never seen, and never read again."""
        if not self._is_open:
            log.warning("%s: the task asked to abort a transaction without records; ignored", self._label)
            return
        positions = self._positions
        with self._measures.phase(Phase.COMMIT):
            self._persist("aborting a transaction", self._writer.abort)
            sent = self._close()
            self._begin()
            self._persist("committing offsets", self._writer.commit, list(positions.values()))
        self._close()
        self._measures.aborted(len(sent))
        self._known.committed(positions)
        self._tell(sent, [None] * len(sent))

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

    def _tell(self, sent: Sequence[SourceRecord], written: Sequence[RecordMetadata | None]) -> None:
        """Let the task know what became of its records."""
        with self._measures.phase(Phase.TELL):
            for record, metadata in zip(sent, written, strict=True):
                self._call(self._task.commit_record, record, metadata)
            self._call(self._task.commit)

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
