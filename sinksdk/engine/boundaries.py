"""Where transactions of a source task end: after each poll, after an interval, or where the task says."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from enum import Enum, auto
from typing import Protocol

from sinksdk.source.context import TransactionContext
from sinksdk.source.records import SourceRecord

log = logging.getLogger(__name__)


class Decision(Enum):
    """What becomes of the open transaction."""

    CONTINUE = auto()
    """It stays open."""
    COMMIT = auto()
    """It is committed here."""
    ABORT = auto()
    """It is aborted here, and none of it is read again."""


class Boundaries(Protocol):
    """Decides at each place where a transaction could end."""

    def after_record(self, record: SourceRecord) -> Decision:
        """A record has been sent."""
        ...

    def after_batch(self, now: float) -> Decision:
        """Everything of a poll has been sent."""
        ...

    def while_polling(self, now: float) -> Decision:
        """The task has been polling for a while, with a transaction open or not."""
        ...

    def at_the_end(self) -> Decision:
        """The task ends in good order, with a transaction open. CONTINUE: it is aborted, and read again."""
        ...


class PollBoundaries:
    """Every poll is a transaction."""

    def after_record(self, record: SourceRecord) -> Decision:  # noqa: ARG002 - part of the protocol
        """Never."""
        return Decision.CONTINUE

    def after_batch(self, now: float) -> Decision:  # noqa: ARG002 - the same
        """Always."""
        return Decision.COMMIT

    def while_polling(self, now: float) -> Decision:  # noqa: ARG002 - the same
        """None is open."""
        return Decision.CONTINUE

    def at_the_end(self) -> Decision:
        """None is open."""
        return Decision.COMMIT


class IntervalBoundaries:
    """A transaction ends when so much time has passed since the last one did, between two polls or in one.

    Args:
        interval: seconds.
        now: when the first one begins.
    """

    def __init__(self, interval: float, now: float) -> None:
        self._interval = interval
        self._due = now + interval

    def after_record(self, record: SourceRecord) -> Decision:  # noqa: ARG002 - part of the protocol
        """Never: a poll is not torn apart."""
        return Decision.CONTINUE

    def after_batch(self, now: float) -> Decision:
        """If it is due."""
        if now < self._due:
            return Decision.CONTINUE
        self._due = now + self._interval
        return Decision.COMMIT

    def while_polling(self, now: float) -> Decision:
        """If it is due: what was polled before need not wait for what may never come."""
        return self.after_batch(now)

    def at_the_end(self) -> Decision:
        """It is committed, due or not."""
        return Decision.COMMIT


class ConnectorBoundaries:
    """A transaction ends where the task asks for it.

    Args:
        context: what it asks.
    """

    def __init__(self, context: WorkerTransactionContext) -> None:
        self._context = context

    def after_record(self, record: SourceRecord) -> Decision:
        """As was asked for this record."""
        return self._context.take(record)

    def after_batch(self, now: float) -> Decision:  # noqa: ARG002 - part of the protocol
        """As was asked for the batch."""
        return self._context.take_batch()

    def while_polling(self, now: float) -> Decision:  # noqa: ARG002 - the same
        """Never: what is asked meanwhile holds for the next batch."""
        return Decision.CONTINUE

    def at_the_end(self) -> Decision:
        """Half of what the task means to be one transaction must not be seen."""
        return Decision.CONTINUE


class WorkerTransactionContext(TransactionContext):
    """Remembers what a task asked for until it is done.

    Args:
        label: connector and task, for messages.
        lock: makes a lock.
    """

    def __init__(self, label: str, lock: Callable[[], AbstractContextManager[object]]) -> None:
        self._label = label
        self._lock = lock()
        self._batch = Decision.CONTINUE
        self._records: list[tuple[SourceRecord, Decision]] = []

    def commit_transaction(self, record: SourceRecord | None = None) -> None:
        """See :meth:`TransactionContext.commit_transaction`."""
        self._ask(record, Decision.COMMIT)

    def abort_transaction(self, record: SourceRecord | None = None) -> None:
        """See :meth:`TransactionContext.abort_transaction`."""
        self._ask(record, Decision.ABORT)

    def take(self, record: SourceRecord) -> Decision:
        """What was asked for this very record, once."""
        with self._lock:
            for at, (asked_for, decision) in enumerate(self._records):
                if asked_for is record:
                    del self._records[at]
                    return decision
        return Decision.CONTINUE

    def take_batch(self) -> Decision:
        """What was asked for the batch, once. Records that were asked for and not in it are forgotten."""
        with self._lock:
            decision, self._batch = self._batch, Decision.CONTINUE
            strangers, self._records = self._records, []
        for record, asked in strangers:
            log.warning(
                "%s: the task asked to %s its transaction after a record of %s that the next poll did not "
                "return; ignored",
                self._label,
                asked.name.lower(),
                dict(record.source_partition),
            )
        return decision

    def _ask(self, record: SourceRecord | None, decision: Decision) -> None:
        with self._lock:
            before = self._batch if record is None else self._asked_for(record)
            if before not in (decision, Decision.CONTINUE):
                where = "this batch" if record is None else "this record"
                message = (
                    f"{self._label}: the transaction shall both be committed and be aborted after {where}; "
                    f"ask for one of the two"
                )
                raise ValueError(message)
            if record is None:
                self._batch = decision
            elif before is Decision.CONTINUE:
                self._records.append((record, decision))

    def _asked_for(self, record: SourceRecord) -> Decision:
        return next((asked for known, asked in self._records if known is record), Decision.CONTINUE)
