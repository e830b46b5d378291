"""Run one sink task: read its ranges, commit when due, close on request."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.engine.worker_sink_task import WorkerSinkTask
from sinksdk.errors import ConnectException
from sinksdk.model.outcome import Failure, PartitionOutcome
from sinksdk.model.plan import RangePlan
from sinksdk.offsets import TopicPartition
from sinksdk.records import SinkRecords

_LONGEST_WAIT = 0.2  # seconds between two checks for a close request


@dataclass(frozen=True, slots=True)
class ClosingRequest:
    reason: ClosingReason
    timeout: float  # seconds that the task has to close
    asked: float | None = None  # time of the request, on the task's clock; None: unknown


@dataclass(frozen=True, slots=True)
class Unread:
    """The rest of a range cannot be read in this generation; a RetriableException is a transient cause."""

    partition: TopicPartition
    error: ConnectException


class SinkTaskRun:
    """The loop runs one task from ``start`` to ``stop``.

    ``batches`` has one range after the other, in any order, and None when no record arrived for a while.
    """

    def __init__(
        self,
        worker: WorkerSinkTask,
        plans: Sequence[RangePlan],
        batches: Iterable[SinkRecords | Unread | None],
        *,
        closing: Callable[[], ClosingRequest | None],
        clock: Clock,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._plans = plans
        self._waiting = {plan.topic_partition: plan for plan in plans}
        self._reading: RangePlan | None = None
        self._unconfirmed: list[TopicPartition] = []
        self._batches = batches
        self._closing = closing
        self._clock = clock
        self._on_progress = on_progress

    def run(self) -> Sequence[PartitionOutcome]:
        """Run the task; return no outcomes if it had to close before it opened a partition.

        Raises:
            FencedException: a newer attempt owns the task; its partitions were closed without a commit.
            Exception: the commit log or the input failed; no commit was made either.
        """
        if self._closing() is not None:
            return ()
        self._worker.set_interrupt(lambda: self._closing() is not None)
        try:
            self._worker.start()
        except Exception as error:  # noqa: BLE001 - the author's start may raise anything
            return [self._never_started(plan, error) for plan in self._plans]
        else:
            self._work()
            return self._worker.outcomes()
        finally:
            self._worker.stop()

    def _work(self) -> None:
        try:
            self._worker.open(self._plans)
            request = self._read()
            if request is not None:
                self._worker.close(request.reason, timeout=request.timeout, asked=request.asked)
            self._worker.flush()
        except BaseException:
            self._worker.lose()  # after fencing or a failed write, the successor decides which writes hold
            raise

    def _read(self) -> ClosingRequest | None:
        """Deliver all batches; return the close request that ended this early, if one did."""
        for records in self._batches:
            if request := self._closing():
                return request
            if isinstance(records, Unread):
                self._turn_to(records.partition)
                self._reading = None
                self._worker.cut_off(records.partition, records.error)
            elif records is not None:
                self._turn_to(records.partition)
                self._worker.deliver(records)
            self._worker.tick()
            if request := self._redeliver():
                return request
            self._on_progress()
            if not self._worker.assignment():
                return None  # no partition is open: the rest would be skipped
        request = self._closing()
        if request is None:
            for plan in filter(None, (self._reading, *self._waiting.values())):
                self._finish(plan)
            if self._unconfirmed:
                self._worker.confirm_ends(self._unconfirmed)
        return request

    def _redeliver(self) -> ClosingRequest | None:
        while self._worker.pending:
            if request := self._closing():
                return request
            if wait := self._worker.wait():
                self._clock.sleep(min(wait, _LONGEST_WAIT))
            self._worker.tick()
            self._on_progress()
        return None

    def _turn_to(self, partition: TopicPartition) -> None:
        if self._reading is not None and self._reading.topic_partition == partition:
            return
        if partition not in self._waiting:
            raise ConnectException(
                f"the input has rows of {partition}, whose range is not assigned to this task or is already "
                f"finished; nothing further is committed"
            )
        # A range is closed once it is read: a task with 50 partitions would hold 50 open files.
        if self._reading is not None:
            self._finish(self._reading, is_whole=not self._worker.is_transformed)
            # Spark's operators may bring late rows, whose offsets no commit may cover.
            if self._worker.is_transformed:
                self._unconfirmed.append(self._reading.topic_partition)
        self._reading = self._waiting.pop(partition)

    def _finish(self, plan: RangePlan, *, is_whole: bool = True) -> None:
        self._worker.finish(plan.topic_partition, ClosingReason.DUE if plan.due else None, is_whole=is_whole)

    def _never_started(self, plan: RangePlan, error: BaseException) -> PartitionOutcome:
        committed = self._worker.committed(plan.topic_partition)
        return PartitionOutcome.unread(plan.topic_partition, plan.start, Failure.of(error), committed)
