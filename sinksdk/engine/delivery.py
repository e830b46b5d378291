"""Deliver batches to ``put`` in portions, each retried until accepted or out of time."""

from __future__ import annotations

import logging
import operator
from collections import deque
from collections.abc import Sequence

import numpy as np

from sinksdk.engine.commits import DeadLetters
from sinksdk.engine.context import Ending, TaskScope, WorkerSinkTaskContext
from sinksdk.engine.conversion import Conversion, Divided
from sinksdk.engine.errant import TooManyErrorsException, WorkerErrantRecordReporter
from sinksdk.engine.options import TaskName
from sinksdk.engine.retry import Attempts, RetryPolicy
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.model.measures import Phase
from sinksdk.model.outcome import Retry
from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecords

log = logging.getLogger(__name__)


class PendingBatch:
    """Divides records that wait for ``put`` into portions of ``most`` records, but divides no offset."""

    def __init__(
        self, records: SinkRecords, *, most: int | None, policy: RetryPolicy, now: float, label: str
    ) -> None:
        self.records = records
        self.converted: SinkRecords | None = None
        self.retry_at = now
        self._most = most
        self._policy = policy
        self._label = label
        self._lengths: deque[int] = deque()
        self.portion = self._next()  # the portion as read; it changes only once it is accepted
        self._attempts: Attempts | None = None
        self._begun: float | None = None

    @property
    def is_put_off(self) -> bool:
        return self._attempts is not None

    def offered(self, now: float) -> None:
        self._begun = now if self._begun is None else self._begun

    def divide(self, lengths: Sequence[int]) -> None:
        self._lengths.extendleft(reversed(lengths))  # a portion that is divided may itself be a part
        self.portion = self._next()

    def take(self) -> SinkRecords:
        """Accept the portion and return it, as read."""
        return self._take(len(self.portion))

    def take_first(self, error: RetriableException) -> SinkRecords:
        """Accept the first ``error.accepted`` records and return them, as read."""
        if self.converted is None:  # ``accepted`` has no meaning in an error of a converter
            return self.portion[:0]
        count = self._count(error.accepted, len(self.converted))
        if count == 0:
            return self.portion[:0]
        if count == len(self.converted):
            return self.take()
        # Records that were reported are accepted with those before them, and records of one offset only
        # together.
        rest = self.converted[count:]
        taken = self._take(int(np.searchsorted(self.portion.offsets, rest.first_offset)))
        self.converted = rest
        return taken

    def _count(self, accepted: object, given: int) -> int:
        try:
            count = operator.index(accepted)  # type: ignore[arg-type]  # the author's, perhaps numpy's
        except TypeError:
            count = -1
        if 0 <= count <= given:
            return count
        raise ConnectException(
            f"{self._label}: put of {self.records.partition} at offset {self.portion.first_offset} raised "
            f"RetriableException(accepted={accepted!r}) for {given} records: accepted must be the number of "
            f"records, counted from the first one, that the task has accepted"
        )

    def _take(self, rows: int) -> SinkRecords:
        taken, self.records = self.records[:rows], self.records[rows:]
        self.portion = self.portion[rows:]
        if not len(self.portion):
            self.portion = self._next()
            self.converted = None
        self._attempts = self._begun = None  # progress restores the full time-out
        return taken

    def _next(self) -> SinkRecords:
        if self._lengths:
            return self.records[: self._lengths.popleft()]
        most = self._most
        if most is None or len(self.records) <= most:
            return self.records
        return self.records[: self.records.whole_offsets(most)]

    def put_off(
        self,
        now: float,
        error: RetriableException,
        asked: float | None,
        earlier: Retry | None = None,
        *,
        in_place: bool = False,
    ) -> Ending | None:
        """Note a failed attempt; return why this generation makes no other, or None."""
        if self._attempts is None:
            self._attempts = Attempts(self._policy, now if self._begun is None else self._begun, earlier)
        delay = self._attempts.failed(now, error.retry_after if asked is None else asked)
        doing = "converting" if self.converted is None else "put of"
        what = f"{doing} {self.records.partition} at offset {self.portion.first_offset}"
        if delay is None:
            spent = ConnectException(
                f"{self._label}: {what} failed {self._attempts.failures} times until the end of "
                f"errors.retry.timeout: {error}"
            )
            spent.__cause__ = error
            return Ending(spent)
        if not in_place and self._attempts.holds_up(now, delay):
            return Ending(error, self._attempts.left(now, delay, self.portion.first_offset))
        if self._attempts.failures == 1:
            log.warning("%s: %s failed, retrying: %s", self._label, what, error)
        self.retry_at = now + delay
        return None


class Delivery:
    def __init__(self, scope: TaskScope, name: TaskName, dead_letters: DeadLetters | None) -> None:
        self._scope = scope
        self._measures = scope.measures
        self.reporter = WorkerErrantRecordReporter(scope, name, dead_letters)
        self._conversion = Conversion(scope.options, self.reporter, task=lambda: scope.task)
        self._batch: PendingBatch | None = None

    @property
    def partition(self) -> TopicPartition | None:
        return self._batch.records.partition if self._batch else None

    @property
    def records(self) -> int:
        return len(self._batch.records) if self._batch else 0

    @property
    def is_put_off(self) -> bool:
        return self._batch is not None and self._batch.is_put_off

    @property
    def due(self) -> float | None:
        return self._batch.retry_at if self._batch else None

    def begin(self, records: SinkRecords) -> None:
        options, task = self._scope.options, self._scope.task
        self._measures.read(len(records))
        self.reporter.begin(records.partition, records.offsets)
        self._batch = PendingBatch(
            records,
            most=task.max_poll_records if options.max_poll_records is None else options.max_poll_records,
            policy=options.retry,
            now=self._scope.clock.now(),
            label=self._scope.label,
        )

    def drop(self) -> None:
        self._batch = None

    def attempt(self, context: WorkerSinkTaskContext) -> Ending | None:
        """Put the portion that is due; return why the partition must end, or None."""
        batch, scope = self._batch, self._scope
        if batch is None:
            return None
        state = scope.states[batch.records.partition]
        ending: Ending | None = None
        batch.offered(scope.clock.now())
        try:
            if batch.converted is None:  # converted only once, so that bad records are reported once
                with self._measures.phase(Phase.CONVERT):
                    batch.converted = self._converted(batch)
            if len(batch.converted):
                with self._measures.put(len(batch.converted)):
                    scope.call("put", batch.converted)
        except RetriableException as error:
            scope.raise_failure()
            ending = self._put_off(batch, error, context.take_timeout())
        except Exception as error:  # noqa: BLE001 - the author's code may raise anything
            scope.raise_failure()
            refusal = state.ending.take_refusal()
            if refusal is None:  # a refused record was counted when it was reported
                self._measures.failed()
            ending = Ending(refusal if isinstance(refusal, TooManyErrorsException) else error)
        else:
            context.take_timeout()
            refusal = state.ending.take_refusal()
            if refusal is None:
                given = batch.converted
                state.accept(batch.take(), given)
            else:  # the task suppressed the reporter's exception (KAFKA-10115)
                ending = Ending(refusal)
        if ending is not None or not len(batch.records):
            self._batch = None
        return ending

    def _converted(self, batch: PendingBatch) -> SinkRecords:
        while True:
            try:
                return self._conversion(batch.portion)
            except Divided as divided:
                batch.divide(divided.lengths)

    def _put_off(self, batch: PendingBatch, error: RetriableException, asked: float | None) -> Ending | None:
        self._measures.failed()
        state = self._scope.states[batch.records.partition]
        try:
            # No commit may cover a refused record: if there is one, no record of the portion counts as
            # accepted.
            if state.ending.refusal is None:
                given = batch.converted
                taken = batch.take_first(error)
                if len(taken):
                    state.accept(taken, given[: error.accepted] if given is not None else None)
                    if batch.converted is None:
                        return None  # the whole batch was accepted
        except ConnectException as wrong:
            wrong.__cause__ = error
            return Ending(wrong)
        ending = batch.put_off(
            self._scope.clock.now(), error, asked, state.retry, in_place=state.retries_in_place
        )
        if ending is None:
            self._measures.retried()
        return ending
