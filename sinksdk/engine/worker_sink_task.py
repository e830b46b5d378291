"""Drive one ``SinkTask`` as Kafka Connect would, and commit when it closes.

The order is ``pre_commit`` (``is_closing()`` is true), commit, ``publish``, ``close``. Connect commits after
``close``; here a failing ``close`` costs no progress. A generation never rewinds: a failed partition ends,
and the next generation starts it from its commit.
"""

from __future__ import annotations

import logging
import operator
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, SupportsIndex

from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.engine.commits import CommitLog, DeadLetters, TopicIdCheck, always_valid
from sinksdk.engine.committer import Committer
from sinksdk.engine.context import TaskScope, WorkerSinkTaskContext
from sinksdk.engine.delivery import Delivery
from sinksdk.engine.options import EngineOptions, TaskName
from sinksdk.errors import ConnectException, RetriableException
from sinksdk.model.measures import Phase, TaskMeasures
from sinksdk.model.outcome import PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import OffsetAndMetadata, TopicPartition, is_topic_name
from sinksdk.records import SinkRecords
from sinksdk.task import SinkTask

log = logging.getLogger(__name__)


class WorkerSinkTask:
    """The worker is single-threaded, and does no I/O.

    Errors of the author's code are in :meth:`outcomes`. Methods raise errors of the commit log: after
    FencedException call :meth:`lose`; after any other the attempt is over.
    """

    # Ten parameters: every dependency of a task is injected, so that a simulation can replace all of them.
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
        check_topics: TopicIdCheck = always_valid,
    ) -> None:
        label = f"{name}, generation {generation}"
        scope = TaskScope(task, label, commits, clock, options or EngineOptions())
        # More than ten attributes: seven are the scope's, under shorter names.
        self._scope = scope
        self._task = task
        self._label = label
        self._clock = clock
        self._commits = scope.commits
        self._states = scope.states
        self._measures = scope.measures
        self._config = config
        self._delivery = Delivery(scope, name, dead_letters)
        self._context = WorkerSinkTaskContext(
            scope, configs=raw_config or {}, generation=generation, reporter=self._delivery.reporter
        )
        self._committer = Committer(scope, self._context, check_topics)
        self._next_commit = clock.now() + scope.options.commit_interval
        self._initialized = False

    def set_interrupt(self, is_closing_requested: Callable[[], bool]) -> None:
        self._committer.is_closing_requested = is_closing_requested

    # -- what the runtime calls ------------------------------------------------------------------

    def start(self) -> None:
        self._initialized = True  # ``stop`` must follow even if ``initialize`` fails
        with self._measures.phase(Phase.START):
            self._scope.call("initialize", self._context)
            self._scope.call("start", self._config)

    def open(self, plans: Iterable[RangePlan]) -> None:
        ranges = {plan.topic_partition: plan for plan in plans}
        for partition in ranges:
            if partition in self.assignment():
                raise RuntimeError(f"{self._label}: {partition} is open already")
        for partition, plan in ranges.items():
            committed = self.committed(partition)
            self._scope.begin(partition, plan)
            if not is_topic_name(partition.topic):  # sinks make paths and keys of topic names
                message = f"{self._label}: {partition.topic!r} is not a valid name of a Kafka topic"
                self._scope.note(partition, ConnectException(message), at_once=True)
                continue
            self._committer.publish(partition)
            if committed is not None and plan.start > committed:
                self._refuse_gap(partition, committed, plan.start)
            self._committer.discard(
                partition, (*self._commits.stale(partition), *self._commits.prepared(partition))
            )
        self._open([p for p in ranges if self._states[p].ending.failure is None])
        self._move([p for p in ranges if self._states[p].is_open])
        self._end_failed()

    def _refuse_gap(self, partition: TopicPartition, committed: int, start: int) -> None:
        # An earlier attempt of this generation has withdrawn the commit to below the range.
        if self._commits.is_withdrawn(partition):
            message = (
                f"{self._label}: the commit of {partition} was withdrawn to offset {committed}, below the "
                f"start offset {start} of this generation; the next one reads it from {committed}"
            )
            self._scope.note(partition, ConnectException(message), at_once=True)

    def _open(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        for partition in partitions:
            self._states[partition].is_open = True  # context.offset and prepared are allowed inside open
        try:
            with self._measures.phase(Phase.OPEN):
                self._scope.call("open", list(partitions))
        except Exception as error:
            # Connect closes partitions that it failed to open; the engine does not.
            for partition in partitions:
                self._states[partition].is_open = False
            self._scope.raise_failure()
            for partition in partitions:
                self._scope.note(partition, error)
        else:
            self._scope.raise_failure()

    def _move(self, opened: Collection[TopicPartition]) -> None:
        for partition in opened:
            asked = self._context.moves.pop(partition, None)
            state, committed = self._states[partition], self._commits.committed(partition)
            if asked is None or state.ending.requested is not None:
                continue
            if self._has_all(partition, asked):
                continue
            problem = self._unreachable(partition, asked)
            if problem is not None:
                message = f"{self._label}: the task requested {partition} at {problem}"
                self._scope.note(partition, ConnectException(message))
                continue
            offset = operator.index(asked)
            if offset > state.start:
                log.info(
                    "%s: the destination already has %s up to offset %d (exclusive): offsets %d to %d are "
                    "skipped and committed",
                    self._label,
                    partition,
                    offset,
                    state.start,
                    offset - 1,
                )
                state.skip_to(offset)
            elif committed is not None and offset < committed.offset:
                log.warning(
                    "%s: the task requested %s at offset %d, so the commit is withdrawn from %d to it; the "
                    "next generation starts there",
                    self._label,
                    partition,
                    offset,
                    committed.offset,
                )
                metadata = self._committer.metadata_at(partition, offset)
                if metadata is None:
                    continue  # pre_commit has failed, which ends the partition
                self._committer.withdraw(partition, OffsetAndMetadata(offset, metadata))
                state.move_back_to(offset)
                self._clean_up([partition])
                self._release([partition])
            elif offset < state.start:
                log.warning(
                    "%s: the task requested %s at offset %d, below the available offsets; it is read from %d",
                    self._label,
                    partition,
                    offset,
                    state.start,
                )

    def _has_all(self, partition: TopicPartition, asked: object) -> bool:
        """Return whether the task received no record from the requested position up to the commit."""
        # The range below the commit may end in bad records, or in offsets without a record (transaction
        # markers, compaction).
        committed, due = self._commits.committed(partition), self._commits.due(partition)
        if committed is None or due is None or not isinstance(asked, SupportsIndex):
            return False
        return due <= operator.index(asked) < committed.offset

    def _unreachable(self, partition: TopicPartition, asked: object) -> str | None:
        if not isinstance(asked, SupportsIndex) or (offset := operator.index(asked)) < 0:
            return f"{asked!r}, which is not an offset"
        log, committed = self._states[partition].plan.log, self._commits.committed(partition)
        if log is not None and offset > log.end:
            return (
                f"offset {offset}, but the end offset of the source is {log.end}: the topic was deleted and "
                f"created again or its newest records were removed, or the destination's offsets are of "
                f"another topic; nothing was skipped. Restore the topic, or correct the offset in the "
                f"destination"
            )
        is_rewind = committed is not None and offset < committed.offset
        if log is not None and is_rewind and offset < log.start and not self._scope.options.skip_lost:
            return (
                f"offset {offset}, but the first offset of the source is {log.start}: the records between "
                f"were removed, and the destination does not have them; the commit is unchanged. Set "
                f"on.data.loss=skip to continue at {log.start}, or correct the offset in the destination"
            )
        return None

    def assignment(self) -> frozenset[TopicPartition]:
        return self._scope.assignment()

    def deliver(self, records: SinkRecords) -> None:
        if self.pending:
            raise RuntimeError(f"{self._label}: a batch is offered while another awaits redelivery")
        partition = records.partition
        state = self._states.get(partition)
        if state is None or not state.is_open or not len(records):
            return
        flaw = state.flaw(records, self.committed(partition), self._label)
        if flaw is not None:
            self._fail(partition, flaw)
            return
        state.note_delivered(records)
        fresh = state.new_rows(records)
        records = state.within_limit(fresh)
        state.is_cut = state.is_cut or len(records) < len(fresh)
        if len(records):
            self._delivery.begin(records)
            self._attempt()
        else:
            self._finish_cut(partition)

    @property
    def pending(self) -> bool:
        return self._delivery.partition is not None

    @property
    def is_put_off(self) -> bool:
        return self._delivery.is_put_off

    def wait(self) -> float:
        now, retry = self._clock.now(), self._delivery.due
        due = now if self._context.commit_requested else self._next_commit
        return max((due if retry is None else min(due, retry)) - now, 0.0)

    def tick(self) -> None:
        if self._context.commit_requested or self._clock.now() >= self._next_commit:
            self.commit()
        retry = self._delivery.due
        if retry is not None and self._clock.now() >= retry:
            self._attempt()

    def commit(self) -> None:
        self._context.commit_requested = False  # cleared before pre_commit, which may request another commit
        self._next_commit = self._clock.now() + self._scope.options.commit_interval
        self._commit(self.assignment(), None, is_last=False)

    def finish(
        self, partition: TopicPartition, reason: ClosingReason | None, *, is_whole: bool = True
    ) -> None:
        """Commit and close a partition whose range has been read.

        Args:
            reason: of a closing commit; None: the commit is periodic.
            is_whole: the range is complete; if not, records may follow, and :meth:`confirm_ends` commits the
            end of the range.
        """
        state = self._states[partition]
        if state.is_open and self._delivery.partition != partition:
            state.is_exhausted = False
            if is_whole:
                state.read_to_end()
        self._finish([partition], reason, None)

    def confirm_ends(self, partitions: Collection[TopicPartition]) -> None:
        # The task has received all of the input.
        sound = [p for p in partitions if self._states[p].ending.failure is None]
        for partition in sound:
            self._states[partition].read_to_end()
        self._committer.write_late_ends([p for p in sound if self._states[p].is_exhausted])

    @property
    def is_transformed(self) -> bool:
        return self._scope.options.is_transformed

    def cut_off(self, partition: TopicPartition, error: ConnectException) -> None:
        if not self._states[partition].is_open:
            return
        if isinstance(error, RetriableException):
            self._scope.note(partition, error)
            self._finish([partition], None, None)
        else:
            self._fail(partition, error)

    def _finish_cut(self, partition: TopicPartition) -> None:
        # A partition is cut if its limit of records was reached before the end of its range.
        if self._states[partition].is_cut:
            self._finish([partition], None, None)

    def close(
        self,
        reason: ClosingReason,
        partitions: Collection[TopicPartition] | None = None,
        *,
        timeout: float | None = None,
        asked: float | None = None,
    ) -> None:
        """Revoke partitions, by default all.

        Args:
            timeout: seconds until ``context.deadline()``.
            asked: time of the close request, on the clock; None: unknown.
        """
        chosen = self.assignment() if partitions is None else self.assignment() & set(partitions)
        deadline = None if timeout is None else self._clock.now() + timeout
        with self._measures.closing(asked):
            self._finish(sorted(chosen), reason, deadline)

    def lose(self, partitions: Collection[TopicPartition] | None = None) -> None:
        """Call ``close`` for partitions that other tasks own now."""
        chosen = self.assignment() if partitions is None else self.assignment() & set(partitions)
        self._release(sorted(chosen))

    def flush(self) -> None:
        with self._measures.phase(Phase.COMMIT):
            self._scope.write(self._commits.flush)

    def stop(self) -> None:
        if not self._initialized:
            return
        self._initialized = False
        try:
            with self._measures.phase(Phase.STOP):
                self._scope.release("stop")
        except Exception:
            log.warning("%s: stop raised; ignored", self._label, exc_info=True)

    def position(self, partition: TopicPartition) -> int:
        return self._states[partition].position

    def committed(self, partition: TopicPartition) -> int | None:
        committed = self._commits.committed(partition)
        return committed.offset if committed else None

    def outcomes(self) -> list[PartitionOutcome]:
        return [
            state.outcome(self.committed(p), self._commits.visible(p), dict(self._context.counts.get(p, {})))
            for p, state in self._states.items()
        ]

    def measures(self, time: float) -> TaskMeasures:
        return self._measures.taken(time)

    # -- put -------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        partition = self._delivery.partition
        if partition is None:
            return
        ending = self._delivery.attempt(self._context)
        if ending is None:
            if not self.pending:
                self._finish_cut(partition)
        elif ending.retry is None:
            self._fail(partition, ending.error)
        else:
            # Waiting for a retry is no closing: the destination asks for a delay, so nothing is flushed.
            self._scope.note(partition, ending.error, retry=ending.retry)
            self._finish([partition], None, None)
        self._end_failed()

    # -- commit ----------------------------------------------------------------------------------

    def _commit(
        self,
        partitions: Collection[TopicPartition],
        reason: ClosingReason | None,
        deadline: float | None = None,
        *,
        is_last: bool = True,
    ) -> None:
        began = self._clock.now()
        sound = self._committer.commit(partitions, reason, deadline, is_last=is_last)
        self._end_failed(began)
        self._committer.write_range_ends(sound)
        self._count_active()

    # -- ending partitions -----------------------------------------------------------------------

    def _fail(self, partition: TopicPartition, error: BaseException) -> None:
        """Commit, as Connect does, what was accepted before a permanent failure, and close."""
        self._scope.note(partition, error)
        # A commit would skip bad records of a partition that has too many, and late records of an unordered
        # source; a fenced task writes nothing.
        if not self._scope.casts_doubt(error):
            self._finish([partition], ClosingReason.FAILURE, None)
        elif self._states[partition].is_open:
            self._clean_up([partition])
            self._release([partition])

    def _end_failed(self, began: float | None = None) -> None:
        moves, self._context.moves = self._context.moves, {}
        for partition, offset in moves.items():
            state = self._states[partition]
            if state.is_open and offset != state.position:
                self._scope.misplace(partition, offset)
        self._scope.note_requested(began)
        ended = [p for p, state in self._states.items() if state.is_open and state.ending.failure]
        self._clean_up(ended)
        self._release(ended)

    def _finish(
        self, partitions: Collection[TopicPartition], reason: ClosingReason | None, deadline: float | None
    ) -> None:
        open_now = [p for p in partitions if self._states[p].is_open]
        self._commit(open_now, reason, deadline)
        still_open = [p for p in open_now if self._states[p].is_open]
        self._clean_up(still_open)
        self._release(still_open)

    def _clean_up(self, partitions: Collection[TopicPartition]) -> None:
        # No write of this attempt has failed: no lost response can have committed these tokens.
        for partition in partitions:
            ending = self._states[partition].ending
            # The successor of a fenced task decides about the tokens. If a retry is left, the destination is
            # unavailable now, and a later generation discards them.
            if ending.is_fenced or (ending.failure is not None and ending.failure.retry is not None):
                continue
            self._committer.discard(partition, self._commits.prepared(partition))

    def _release(self, partitions: Collection[TopicPartition]) -> None:
        if not partitions:
            return
        if self._delivery.partition in partitions:
            self._delivery.drop()
        for partition in partitions:
            self._states[partition].is_open = False
            self._delivery.reporter.forget(partition)
            self._context.moves.pop(partition, None)
        self._count_active()
        try:
            with self._measures.phase(Phase.CLOSE):
                self._scope.release("close", list(partitions))
        except Exception:
            log.warning(
                "%s: close of %s raised; what was committed stays committed",
                self._label,
                ", ".join(map(str, partitions)),
                exc_info=True,
            )

    def _count_active(self) -> None:
        tails = (self._states[p].accepted.tail(self._scope.floor(p)) for p in self.assignment())
        self._measures.still_active(sum(tails) + self._delivery.records)
