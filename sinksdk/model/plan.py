"""The planner keeps a partition's plan for one generation, and state between generations."""

from __future__ import annotations

from typing import Any, Final, Self

from sinksdk.model.base import NamedPartition, OfPartition, Value
from sinksdk.model.outcome import Retry
from sinksdk.offsets import OffsetRange, TopicPartition

_OPEN_END: Final = 2**63 - 1


class RangePlan(NamedPartition):
    """A generation reads at most the offsets from ``start`` to ``end`` (exclusive) of a partition."""

    start: int
    end: int
    due: bool = False  # the commit at ``end`` is a closing one
    records: int | None = None  # most records to read; None: no limit
    retry: Retry | None = None
    log: OffsetRange | None = None  # offsets that the source held; None: unknown
    # Commits keep the epoch: offsets do not show that a log was cut and grew again (KIP-320).
    leader_epoch: int | None = None

    @classmethod
    def of(cls, partition: TopicPartition, start: int, end: int, **more: Any) -> Self:
        return cls(topic=partition.topic, partition=partition.partition, start=start, end=end, **more)

    @classmethod
    def open_ended(cls, partition: TopicPartition, **more: Any) -> Self:
        # A DataFrame is read from its commit to the end of the input; such a range is never stored.
        return cls.of(partition, 0, _OPEN_END, **more)

    @property
    def is_open_ended(self) -> bool:
        return self.end == _OPEN_END

    def on_clock(self, ahead: float) -> Self:
        return self if self.retry is None else self.model_copy(update={"retry": self.retry.on_clock(ahead)})

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)


class Seen(Value):
    """The source had records below offset ``end`` at this time."""

    end: int
    at: float


class Tail(Value):
    """A task has read these records above its commit without committing them."""

    committed: int
    end: int
    records: int  # counted: offsets have gaps


class PlannerState(OfPartition):
    """Losing a partition's planner state loses no record."""

    seen: tuple[Seen, ...] = ()
    tail: Tail | None = None
    failures: int = 0  # failures in a row
    error: str | None = None
    end: int | None = None  # end offset of the source
    failed_at: tuple[float, ...] = ()  # latest times of failures, in a row or not
    trace: str | None = None
    density: float | None = None  # records per offset in recent reads
    in_vain: int = 0  # records read without result, less a share of those committed since
    moved_at: tuple[float, ...] = ()  # times at which the task moved the commit back
    undiscarded: str | None = None  # why uncommitted tokens could not be discarded
    retry: Retry | None = None  # retry of ``error``, which then is not a failure
