"""WorkerSinkTask: drives one ``SinkTask`` as Kafka Connect would, and commits when it closes.

The order while closing is ``pre_commit`` (``is_closing()`` true) → commit → ``publish`` → ``close``.
Connect closes before it commits; here the commit comes first, so that a failing ``close`` costs no
progress. A generation never goes back: whatever goes wrong with a partition ends it for this
generation, its remaining rows are skipped, and the next generation starts it from its commit.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from typing import Any, SupportsIndex

from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.engine.commits import CommitLog, GuardedCommitLog, TopicIdCheck, always_valid
from sinksdk.engine.committer import Committer, Publisher
from sinksdk.engine.context import WorkerSinkTaskContext
from sinksdk.engine.errant import (
    Conversion,
    DeadLetters,
    ErrorCounters,
    Origin,
    TooManyErrorsException,
    WorkerErrantRecordReporter,
)
from sinksdk.engine.failures import Failures, Reports
from sinksdk.engine.measures import Measures
from sinksdk.engine.options import EngineOptions, TaskName
from sinksdk.engine.outcome import PartitionOutcome
from sinksdk.engine.partition import OrderViolation, PartitionState, offsets_of
from sinksdk.engine.redelivery import Redelivery
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.records import OffsetAndMetadata, OffsetRange, SinkRecords, TopicPartition
from sinksdk.support.measures import Phase, TaskMeasures
from sinksdk.support.retry import Retry
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)


class WorkerSinkTask:
    """Drives one task through one generation. Synchronous, single-threaded, no I/O of its own.

    Any method may raise what the commit log raised: :class:`~sinksdk.FencedException` (then call
    :meth:`lose` for everything that is open) or an error of the store (then the attempt is over);
    errors of the author's code never leave it, they end partitions and stand in :meth:`outcomes`.

    Args:
        task: the author's task.
        name: whose task it is.
        config: validated configuration, given to ``start``.
        commits: this attempt's commit log.
        clock: the only source of time.
        generation: number of the generation.
        raw_config: configuration as written, for ``context.configs()``.
        options: intervals, retries, converters.
        dead_letters: where errant records go, if anywhere.
        vouch: whether topics are still those that were planned; asked before each commit.
    """

    def __init__(
        self,
        task: SinkTask,
        name: TaskName,
        config: Any,
        *,
        commits: CommitLog,
        clock: Clock,
        generation: int = 1,
        raw_config: Mapping[str, str] | None = None,
        options: EngineOptions | None = None,
        dead_letters: DeadLetters | None = None,
        vouch: TopicIdCheck = always_valid,
    ) -> None:
        self._task = task
        self._label = f"{name}, generation {generation}"
        self._config = config
        self._commits = GuardedCommitLog(commits)
        self._clock = clock
        self._measures = Measures(clock)
        self._options = options or EngineOptions()
        self._states: dict[TopicPartition, PartitionState] = {}
        self._pending: Redelivery | None = None
        self._reports = Reports()
        self._tallies = ErrorCounters(self._options.ceiling)
        self._next_commit = clock.now() + self._options.commit_interval
        self._initialized = False
        self._reporter = WorkerErrantRecordReporter(
            Origin(name.connector, name.task, type(task).__qualname__),
            dead_letters,
            options=self._options,
            on_report=self._on_report,
            count=self._tallies.failed,
            measures=self._measures,
        )
        self._conversion = Conversion(self._options, self._reporter)
        self._context = WorkerSinkTaskContext(
            configs=raw_config or {},
            generation=generation,
            commits=self._commits,
            clock=clock,
            assignment=self.assignment,
            reporter=self._reporter,
            label=self._label,
        )
        self._publisher = Publisher(
            task,
            self._commits,
            clock,
            retry=self._options.retry,
            label=self._label,
            measures=self._measures,
        )
        self._failures = Failures(
            self._states,
            clock,
            policy=self._options.retry,
            measures=self._measures,
            label=self._label,
        )
        self._committer = Committer(
            task,
            self._commits,
            clock,
            self._states,
            context=self._context,
            reports=self._reports,
            publisher=self._publisher,
            vouch=vouch,
            failures=self._failures,
            measures=self._measures,
            label=self._label,
        )

    def heed(self, closing_asked: Callable[[], bool]) -> None:
        """Ask this while anything is tried again, but in a closing commit: closing cannot wait for it."""
        self._publisher.closing_asked = closing_asked

    # -- what the runtime calls ------------------------------------------------------------------

    def start(self) -> None:
        """``initialize`` and ``start``. Raises what they raise; :meth:`stop` is due either way."""
        self._initialized = True
        with self._measures.phase(Phase.START):
            self._commits.call(self._task.initialize, self._context)
            self._commits.call(self._task.start, self._config)

    def open(
        self,
        ranges: Mapping[TopicPartition, OffsetRange | None],
        limits: Mapping[TopicPartition, int | None] | None = None,
        retries: Mapping[TopicPartition, Retry | None] | None = None,
    ) -> None:
        """Take partitions on: publish what is committed, discard what is stale, then ``open``.

        Args:
            ranges: what this generation reads of each; None for an open end, starting at the commit.
            limits: most records it takes of a partition; one with more ends there, before its range does.
            retries: what earlier generations have left to this one to try again.
        """
        for partition in ranges:
            if partition in self.assignment():
                message = f"{self._label}: {partition} is open already"
                raise RuntimeError(message)
        for partition, offsets in ranges.items():
            committed = self._commits.committed(partition)
            # The commit may be ahead (an earlier attempt's), or behind (records the source lost).
            start = max(committed.offset if committed else 0, offsets.start if offsets else 0)
            self._states[partition] = PartitionState(
                partition,
                start,
                offsets.end if offsets else None,
                position=start,
                begin=offsets.start if offsets else 0,
                limit=(limits or {}).get(partition),
                retry=(retries or {}).get(partition),
            )
            self._committer.publish(partition)
            if committed and offsets and offsets.start > committed.offset:
                self._refuse_gap(partition, committed.offset, offsets.start)
            self._publisher.discard(
                partition, (*self._commits.stale(partition), *self._commits.prepared(partition))
            )
        self._open([p for p in ranges if self._states[p].failure is None])
        self._move([p for p in ranges if self._states[p].is_open])
        self._heed_requests()

    def _refuse_gap(self, partition: TopicPartition, committed: int, start: int) -> None:
        """An earlier attempt has withdrawn a commit: what this generation reads begins too late."""
        if self._commits.is_withdrawn(partition):
            message = (
                f"{self._label}: the commit of {partition} was withdrawn to offset {committed}, this "
                f"generation reads from {start}; the next one reads it from there"
            )
            self._failures.note(partition, ConnectException(message), at_once=True)

    def _open(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        for partition in partitions:
            self._states[partition].is_open = True  # context.offset and prepared are legal inside open
        try:
            with self._measures.phase(Phase.OPEN):
                self._task.open(list(partitions))
        except Exception as error:
            for partition in partitions:
                self._states[partition].is_open = False  # Connect closes what failed to open; we do not
            self._commits.raise_failure()
            for partition in partitions:
                self._failures.note(partition, error)
        else:
            self._commits.raise_failure()

    def _move(self, opened: Collection[TopicPartition]) -> None:
        """Go to the positions that the task asked for in ``open``."""
        for partition in opened:
            asked = self._context.moves.pop(partition, None)
            if asked is None or partition in self._context.failures:
                continue
            state, committed = self._states[partition], self._commits.committed(partition)
            if not isinstance(asked, SupportsIndex) or (offset := operator.index(asked)) < 0:
                problem = f"{self._label}: the task asked for {partition} at {asked!r}, which is no offset"
                self._failures.note(partition, ConnectException(problem))
            elif offset > state.start:
                log.warning(
                    "%s: the task asked for %s at offset %d; what is there from %d on is not delivered",
                    self._label,
                    partition,
                    offset,
                    state.start,
                )
                state.skip_to(offset)
            elif committed is not None and offset < committed.offset:
                log.warning(
                    "%s: the task asked for %s at offset %d, so the commit goes back from %d; the next "
                    "generation begins there",
                    self._label,
                    partition,
                    offset,
                    committed.offset,
                )
                self._commits.withdraw(partition, OffsetAndMetadata(offset), ())
                state.go_back_to(offset)
                self._clean_up([partition])
                self._release([partition])
            elif offset < state.start:
                log.warning(
                    "%s: the task asked for %s at offset %d; it is read from %d on, where the source has it",
                    self._label,
                    partition,
                    offset,
                    state.start,
                )

    def assignment(self) -> frozenset[TopicPartition]:
        """Partitions that are open."""
        return frozenset(p for p, state in self._states.items() if state.is_open)

    def deliver(self, records: SinkRecords) -> None:
        """Offer a batch to the task, or the first portion of it. Only when no batch is :attr:`pending`.

        Rows of partitions that ended, and rows that an earlier attempt committed, are skipped.
        """
        if self._pending is not None:
            message = f"{self._label}: a batch is offered while another awaits redelivery"
            raise RuntimeError(message)
        state = self._states.get(records.partition)
        if state is None or not state.is_open or not len(records):
            return
        flaw = state.flaw(records, self.committed(records.partition), self._label)
        if flaw is not None:
            self._fail(records.partition, flaw)
            return
        records = state.within_limit(state.new_rows(records))
        if not len(records):
            self._finish_cut(state)
            return
        self._measures.read(len(records))
        self._tallies.begin(records.partition, offsets_of(records))
        most = self._options.max_poll_records
        self._pending = Redelivery(
            records,
            most=self._task.max_poll_records if most is None else most,
            policy=self._options.retry,
            now=self._clock.now(),
            label=self._label,
        )
        self._attempt(self._pending)

    @property
    def pending(self) -> bool:
        """Whether a batch, or the rest of one, is still to be taken."""
        return self._pending is not None

    @property
    def is_put_off(self) -> bool:
        """Whether a batch awaits redelivery, which only time can bring."""
        return self._pending is not None and self._pending.is_put_off

    def wait(self) -> float:
        """Seconds until :meth:`tick` has something to do."""
        due = self._clock.now() if self._context.commit_requested else self._next_commit
        if self._pending is not None:
            due = min(due, self._pending.retry_at)
        return max(due - self._clock.now(), 0.0)

    def tick(self) -> None:
        """Do what is due: a periodic commit, another attempt at a pending batch or its next portion."""
        if self._context.commit_requested or self._clock.now() >= self._next_commit:
            self.commit()
        if self._pending is not None and self._clock.now() >= self._pending.retry_at:
            self._attempt(self._pending)

    def commit(self) -> None:
        """A periodic commit of all open partitions."""
        self._context.commit_requested = False  # before pre_commit, which may ask for another one
        self._next_commit = self._clock.now() + self._options.commit_interval
        self._commit(self.assignment(), None, is_last=False)

    def finish(self, partition: TopicPartition, closing: ClosingReason | None) -> None:
        """A partition's whole range has been read: commit, closing or not, and close it."""
        state = self._states[partition]
        if state.is_open and not (self._pending and self._pending.records.partition == partition):
            state.exhausted = not state.is_cut
        self._finish([partition], closing, None)

    def cut_off(self, partition: TopicPartition, error: ConnectException) -> None:
        """A partition's range cannot be read to its end: commit what was accepted of it, and close it."""
        if not self._states[partition].is_open:
            return
        if isinstance(error, RetriableException):
            self._failures.note(partition, error)
            self._finish([partition], None, None)
        else:
            self._fail(partition, error)

    def _finish_cut(self, state: PartitionState) -> None:
        """A partition that has taken all it may, and has more, ends here."""
        if state.is_cut:
            self._finish([state.partition], None, None)

    def close(
        self,
        reason: ClosingReason,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
        asked: float | None = None,
    ) -> None:
        """Give partitions up: closing commit, publish, ``close``. A batch awaiting redelivery is dropped.

        Args:
            reason: why; ``context.closing_reason()`` shows it.
            partitions: which; None for all that are open.
            timeout: seconds the task has for it, shown by ``context.deadline()``.
            asked: when it was asked for, on the clock, if that is known.
        """
        chosen = self.assignment() if partitions is None else self.assignment() & set(partitions)
        deadline = None if timeout is None else self._clock.now() + timeout
        with self._measures.closing(asked):
            self._finish(sorted(chosen), reason, deadline)

    def lose(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """These partitions are somebody else's now: ``close`` them, commit and clean up nothing."""
        chosen = self.assignment() if partitions is None else self.assignment() & set(partitions)
        self._release(sorted(chosen))

    def settle(self) -> None:
        """Make durable what the commit log kept for its next write: what was published and discarded."""
        with self._measures.phase(Phase.COMMIT):
            self._commits.flush()

    def stop(self) -> None:
        """``stop``, once, last of all, if ``initialize`` was ever called."""
        if not self._initialized:
            return
        self._initialized = False
        try:
            with self._measures.phase(Phase.STOP):
                self._task.stop()
        except Exception:
            log.warning("%s: stop raised; ignored", self._label, exc_info=True)

    def committed(self, partition: TopicPartition) -> int | None:
        """Next offset to read after a partition's last commit, None if it never had one."""
        committed = self._commits.committed(partition)
        return committed.offset if committed else None

    def outcomes(self) -> list[PartitionOutcome]:
        """What became of each partition so far."""
        return [
            state.outcome(self.committed(p), self._commits.visible(p), dict(self._context.counts.get(p, {})))
            for p, state in self._states.items()
        ]

    def measures(self, time: float) -> TaskMeasures:
        """What was measured so far; ``time`` is now, in seconds since the epoch."""
        return self._measures.taken(time)

    # -- put -------------------------------------------------------------------------------------

    def _attempt(self, pending: Redelivery) -> None:
        partition = pending.records.partition
        pending.offered(self._clock.now())
        try:
            if pending.converted is None:  # once: what cannot be converted is reported once
                with self._measures.phase(Phase.CONVERT):
                    pending.converted = self._conversion(pending.portion)
            if len(pending.converted):
                with self._measures.put(len(pending.converted)):
                    self._commits.call(self._task.put, pending.converted)
        except RetriableException as error:
            self._commits.raise_failure()
            self._await_redelivery(pending, error)
        except Exception as error:
            self._commits.raise_failure()
            self._pending = None
            refusal = self._reports.take_refusal(partition)
            if refusal is None:  # else it was counted when it was reported
                self._measures.failed()
            self._fail(partition, refusal if isinstance(refusal, TooManyErrorsException) else error)
        else:
            self._context.take_timeout()
            refusal = self._reports.take_refusal(partition)
            if refusal is None:
                self._accept(pending.take())
            else:  # the task swallowed what the reporter raised (KAFKA-10115)
                self._pending = None
                self._fail(partition, refusal)
        self._heed_requests()

    def _accept(self, taken: SinkRecords) -> None:
        """The task has taken these of the pending batch."""
        if len(taken):
            self._states[taken.partition].accept(taken)
        if self._pending is not None and not len(self._pending.records):
            partition, self._pending = self._pending.records.partition, None
            self._finish_cut(self._states[partition])

    def _await_redelivery(self, pending: Redelivery, error: RetriableException) -> None:
        """Try again what was not taken. What was is in no commit if a record in it was refused."""
        partition, asked = pending.records.partition, self._context.take_timeout()
        self._measures.failed()
        problem: ConnectException | Retry | None = None
        try:
            if not self._reports.refused(partition):
                taken = pending.take_first(error)
                self._accept(taken)
                if len(taken) and pending.converted is None:
                    return  # it has taken all that it was given
        except ConnectException as wrong:
            wrong.__cause__ = error
            problem = wrong
        else:
            state = self._states[partition]
            problem = pending.put_off(self._clock.now(), error, asked, state.retry, stays=state.stays)
        if problem is None:
            self._measures.retried()
        elif isinstance(problem, Retry):
            self._pending = None
            self._give_way(partition, error, problem)
        else:
            self._pending = None
            self._fail(partition, problem)

    def _on_report(
        self, partition: TopicPartition, letter: Future[None], refusal: ConnectException | None
    ) -> None:
        if partition in self.assignment():
            self._reports.add(partition, letter, refusal)

    # -- commit ----------------------------------------------------------------------------------

    def _commit(
        self,
        partitions: Collection[TopicPartition],
        closing: ClosingReason | None,
        deadline: float | None = None,
        *,
        is_last: bool = True,
    ) -> None:
        began = self._clock.now()
        sound = self._committer.commit(partitions, closing, deadline, is_last=is_last)
        self._heed_requests(began)
        self._committer.write_range_ends(sound)
        self._count_active()

    # -- ending partitions -----------------------------------------------------------------------

    def _fail(self, partition: TopicPartition, error: BaseException) -> None:
        """``put`` failed for good: commit what was accepted before, as Connect does, and close.

        Not so where that is in doubt: too many records failed, and those skipped since the last commit are
        to be read again; or the source breaks its order, and a commit would pass over what comes late.
        """
        self._failures.note(partition, error)
        if not isinstance(error, (TooManyErrorsException, OrderViolation)):
            self._finish([partition], ClosingReason.FAILURE, None)
        elif self._states[partition].is_open:
            self._clean_up([partition])
            self._release([partition])

    def _give_way(self, partition: TopicPartition, error: RetriableException, retry: Retry) -> None:
        """Nothing is left to do but to wait: commit what was accepted before, and leave the place to others.

        That is no closing: nobody takes the partition away, and what it writes to asks for patience.
        """
        self._failures.note(partition, error, retry=retry)
        self._finish([partition], None, None)

    def _heed_requests(self, began: float | None = None) -> None:
        """End the partitions the task asked to end, during the author's call that just returned.

        Args:
            began: when that call began.
        """
        for partition, refusal in self._reports.take_refusals().items():
            self._context.failures.setdefault(partition, refusal)
        moves, self._context.moves = self._context.moves, {}
        for partition, offset in moves.items():
            state = self._states[partition]
            if state.is_open and offset != state.position:
                self._context.failures.setdefault(
                    partition,
                    ConnectException(
                        f"{self._label}: the task asked for {partition} at offset {offset} while at "
                        f"{state.position}; the next generation starts it at its commit"
                    ),
                )
        failures, self._context.failures = self._context.failures, {}
        for partition, error in failures.items():
            self._failures.note(partition, error, began=began)
        ended = [p for p, state in self._states.items() if state.is_open and state.failure]
        self._clean_up(ended)
        self._release(ended)

    def _finish(
        self, partitions: Collection[TopicPartition], closing: ClosingReason | None, deadline: float | None
    ) -> None:
        open_now = [p for p in partitions if self._states[p].is_open]
        self._commit(open_now, closing, deadline)
        still_open = [p for p in open_now if self._states[p].is_open]
        self._clean_up(still_open)
        self._release(still_open)

    def _clean_up(self, partitions: Collection[TopicPartition]) -> None:
        """Discard what was prepared and not committed: all our writes' outcomes are known here.

        Where a later generation tries again, it discards, too: what it would ask is away now.
        """
        for partition in partitions:
            failure = self._states[partition].failure
            if failure is not None and failure.retry is not None:
                continue
            self._publisher.discard(partition, self._commits.prepared(partition))

    def _release(self, partitions: Collection[TopicPartition]) -> None:
        """``close``; each partition exactly once, whatever it raises."""
        if not partitions:
            return
        self._drop_pending(partitions)
        for partition in partitions:
            self._states[partition].is_open = False
            self._reports.forget(partition)
            self._tallies.forget(partition)
            self._context.forget(partition)
        self._count_active()
        try:
            with self._measures.phase(Phase.CLOSE):
                self._task.close(list(partitions))
        except Exception:
            log.warning(
                "%s: close of %s raised; what was committed stays committed",
                self._label,
                ", ".join(map(str, partitions)),
                exc_info=True,
            )

    def _drop_pending(self, partitions: Collection[TopicPartition]) -> None:
        if self._pending is not None and self._pending.records.partition in partitions:
            self._pending = None

    def _count_active(self) -> None:
        """Records that were read and not committed, of the partitions that are open."""
        tails = (state.tail(self._committer.floor(p)) for p, state in self._states.items() if state.is_open)
        self._measures.still_active(sum(tails) + (len(self._pending.records) if self._pending else 0))
