"""The loop of one task: reads its ranges, commits what is due, closes when asked to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from sinksdk.context import ClosingReason
from sinksdk.engine.clock import Clock
from sinksdk.engine.options import RangeTerms
from sinksdk.engine.outcome import Failure, PartitionOutcome
from sinksdk.engine.sink import WorkerSinkTask
from sinksdk.errors import ConnectException
from sinksdk.records import OffsetRange, SinkRecords, TopicPartition
from sinksdk.support.retry import Retry

_LONGEST_WAIT = 0.2  # seconds between two looks whether to close


@dataclass(frozen=True, slots=True)
class AssignedRange:
    """What a task reads of one partition.

    Args:
        due: its end is closing: nothing may be kept back.
        records: most records to take of it, if there is such a limit.
        retry: what earlier generations have left to this one to try again, on the task's clock.
    """

    partition: TopicPartition
    offsets: OffsetRange
    due: bool = False
    records: int | None = None
    retry: Retry | None = None


@dataclass(frozen=True, slots=True)
class ClosingRequest:
    """The generation is to close; ``reason`` is what the task sees.

    Args:
        timeout: seconds the task has for it.
        asked: when it was asked for, on the task's clock, if that is known.
    """

    reason: ClosingReason
    timeout: float
    asked: float | None = None


@dataclass(frozen=True, slots=True)
class Unread:
    """A range cannot be read any further, as far as this generation goes; the others can.

    Args:
        error: why. ``OffsetOutOfRangeException``: its records are gone; ``RetriableException``: it may pass.
    """

    partition: TopicPartition
    error: ConnectException


class SinkTaskRun:
    """One task from ``start`` to ``stop``.

    Args:
        batches: rows of one range after the other, in any order; None whenever nothing came for a while;
            and of a range that cannot be read to its end, why.
        closing: asked between two calls of ``put`` whether to close.
        clock: lets time pass while a batch awaits redelivery.
        on_progress: called between two calls of ``put``.
    """

    def __init__(
        self,
        worker: WorkerSinkTask,
        assigned: Sequence[AssignedRange],
        batches: Iterable[SinkRecords | Unread | None],
        *,
        closing: Callable[[], ClosingRequest | None],
        clock: Clock,
        on_progress: Callable[[], None] = lambda: None,
    ) -> None:
        self._worker = worker
        self._assigned = assigned
        self._waiting = {item.partition: item for item in assigned}
        self._reading: AssignedRange | None = None
        self._batches = batches
        self._closing = closing
        self._clock = clock
        self._on_progress = on_progress

    def run(self) -> Sequence[PartitionOutcome]:
        """Run it.

        Returns:
            What became of each partition; empty when closing was asked before anything was opened.

        Raises:
            FencedException: somebody newer owns the task; its partitions were closed, nothing committed.
            Exception: the commit log or the input failed; likewise.
        """
        if self._closing() is not None:
            return ()
        self._worker.set_interrupt(lambda: self._closing() is not None)
        try:
            self._worker.start()
        except Exception as error:  # noqa: BLE001 - the author's start may raise anything
            return [self._never_started(item, error) for item in self._assigned]
        else:
            self._work()
            return self._worker.outcomes()
        finally:
            self._worker.stop()

    def _work(self) -> None:
        try:
            self._worker.open(
                {item.partition: item.offsets for item in self._assigned},
                {item.partition: RangeTerms(item.records, item.retry) for item in self._assigned},
            )
            request = self._read()
            if request is not None:
                self._worker.close(request.reason, timeout=request.timeout, asked=request.asked)
            self._worker.flush()
        except BaseException:
            self._worker.lose()  # not ours any more, or we cannot know: a successor decides what stands
            raise

    def _read(self) -> ClosingRequest | None:
        """Deliver everything; the request that ended it early, if one did."""
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
                return None  # every partition has ended: the rest would only be skipped
        request = self._closing()
        if request is None:
            for item in filter(None, (self._reading, *self._waiting.values())):
                self._finish(item)
        return request

    def _redeliver(self) -> ClosingRequest | None:
        """Portion by portion, until a whole batch is taken or its partition has ended."""
        while self._worker.pending:
            if request := self._closing():
                return request
            if wait := self._worker.wait():
                self._clock.sleep(min(wait, _LONGEST_WAIT))
            self._worker.tick()
            self._on_progress()
        return None

    def _turn_to(self, partition: TopicPartition) -> None:
        """Rows come range by range: where another partition's begin, those of the one before are complete."""
        if self._reading is not None and self._reading.partition == partition:
            return
        if partition not in self._waiting:
            raise ConnectException(
                f"the input has rows of {partition} out of turn: its range is not assigned, or has ended; "
                f"nothing further is committed"
            )
        if self._reading is not None:
            self._finish(self._reading)
        self._reading = self._waiting.pop(partition)

    def _finish(self, item: AssignedRange) -> None:
        self._worker.finish(item.partition, ClosingReason.DUE if item.due else None)

    def _never_started(self, item: AssignedRange, error: BaseException) -> PartitionOutcome:
        committed = self._worker.committed(item.partition)
        return PartitionOutcome.unread(item.partition, item.offsets.start, Failure.of(error), committed)
