"""A source task's transactions: what is sent, how far the source was read by it, and who is told."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from sinksdk.engine.clock import Clock
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.engine.threads import Signal
from sinksdk.engine.writer import TransactionalWriter
from sinksdk.errors import ConnectException, DataException, FencedException, RetriableException
from sinksdk.source.positions import SourcePosition, as_json
from sinksdk.source.records import SourceRecord
from sinksdk.source.task import SourceTask

log = logging.getLogger(__name__)

T = TypeVar("T")


class AuthorsCode:
    """Calls what a task's author wrote.

    Args:
        label: connector and task, for messages.
    """

    def __init__(self, label: str) -> None:
        self._label = label

    def __call__(self, method: Callable[..., T], *arguments: object) -> T:
        """Call a method.

        Raises:
            RetriableException: as it raised it.
            ConnectException: it raised anything else, which is the cause.
        """
        try:
            return method(*arguments)
        except RetriableException:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise ConnectException(f"{self._label}: {method.__name__} raised {kind}: {error}") from error


class SourceTransactions:
    """One transaction after the other through one writer; begun with its first record, not before.

    Args:
        task: told what is committed.
        writer: where records go.
        label: connector and task, for messages.
        clock: passes between two attempts.
        retry: how long what may yet succeed is tried.
        given_up: nobody waits any more: nothing is tried again.
    """

    def __init__(
        self,
        task: SourceTask,
        writer: TransactionalWriter,
        *,
        label: str,
        clock: Clock,
        retry: RetryPolicy,
        given_up: Signal,
    ) -> None:
        self._task = task
        self._writer = writer
        self._label = label
        self._clock = clock
        self._retry = retry
        self._given_up = given_up
        self._call = AuthorsCode(label)
        self._is_open = False
        self._sent: list[SourceRecord] = []
        self._positions: dict[str, SourcePosition] = {}
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
        if not isinstance(record, SourceRecord):
            raise ConnectException(
                f"{self._label}: poll returned a {type(record).__name__} among its records; it must return a "
                f"sequence of SourceRecord"
            )
        try:
            position = SourcePosition.of(record.source_partition, record.source_offset)
        except DataException as error:
            raise DataException(f"{self._label}: a record for topic {record.topic}: {error}") from error
        self._begin()
        self._persist("sending a record", lambda: self._writer.send(record))
        self._sent.append(record)
        self._positions[as_json(position.partition)] = position

    def commit(self) -> None:
        """Commit what is open, if anything is; then tell the task of each record, and of the whole."""
        if not self._is_open:
            return
        positions = list(self._positions.values())
        written = self._persist("committing a transaction", lambda: self._writer.commit(positions))
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
        self._persist("committing offsets", lambda: self._writer.commit(positions))
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

    def _persist(self, what: str, attempt: Callable[[], T]) -> T:
        attempts = Attempts(self._retry)
        while True:
            try:
                return attempt()
            except RetriableException as error:
                delay = attempts.failed(self._clock.now(), error.retry_after)
                if delay is None or self._given_up.wait(delay):
                    raise ConnectException(
                        f"{self._label}: {what} failed {attempts.failures} times, the last time with: {error}"
                    ) from error
                log.warning("%s: %s is tried again: %s", self._label, what, error)
            except FencedException:
                self._close()  # it is not ours to abort any more
                raise
