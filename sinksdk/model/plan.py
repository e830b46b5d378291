"""The plan of one partition in one generation, and the planner's state between generations."""

from __future__ import annotations

from typing import Any, Final, Self

from sinksdk.model.base import NamedPartition, OfPartition, Value
from sinksdk.model.outcome import Retry
from sinksdk.offsets import OffsetRange, TopicPartition

_OPEN_END: Final = 2**63 - 1


class RangePlan(NamedPartition):
    """Offsets [start, end) of one partition: the most that its generation reads of it.

    Args:
        due: the commit at ``end`` is a closing one: the task flushes and commits buffered records.
        records: maximum number of records; a longer range is cut there. None: no limit.
        retry: the failure that this generation retries. A task has its times on its own clock.
        log: offsets that the source held when the range was planned; None: unknown.
        leader_epoch: epoch of the log at that time, stored with the commits of this range; None: unknown.
    """

    start: int
    end: int
    due: bool = False
    records: int | None = None
    retry: Retry | None = None
    log: OffsetRange | None = None
    leader_epoch: int | None = None

    @classmethod
    def of(cls, partition: TopicPartition, start: int, end: int, **more: Any) -> Self:
        return cls(topic=partition.topic, partition=partition.partition, start=start, end=end, **more)

    @classmethod
    def open_ended(cls, partition: TopicPartition, **more: Any) -> Self:
        """From the commit to the end of the input, as for a DataFrame. Never stored."""
        return cls.of(partition, 0, _OPEN_END, **more)

    @property
    def is_open_ended(self) -> bool:
        return self.end == _OPEN_END

    def on_clock(self, ahead: float) -> Self:
        """The same plan with its times on a clock that is ahead by so many seconds."""
        return self if self.retry is None else self.model_copy(update={"retry": self.retry.on_clock(ahead)})

    @property
    def offsets(self) -> OffsetRange:
        return OffsetRange(self.start, self.end)


class Seen(Value):
    """When new records of a partition, those below offset ``end``, were first seen."""

    end: int
    at: float


class Tail(Value):
    """Records above a commit that the task read, up to ``end``, and did not commit.

    Args:
        committed: the offset of that commit.
        records: how many there are, counted (offsets have gaps).
    """

    committed: int
    end: int
    records: int


class PlannerState(OfPartition):
    """The planner's state of a partition between generations; losing it loses no record.

    Args:
        failures: how often in a row it has failed.
        end: end offset of the source at the last check.
        failed_at: times of its latest failures, in a row or not.
        density: records per offset, as read lately; None: nothing was read yet.
        in_vain: records read, not committed, and to be read again, less those committed since.
        moved_at: times at which its task has lately moved it back to an earlier offset.
        undiscarded: why uncovered tokens could not be discarded.
        retry: the retry of ``error``, if it is retriable; then it does not count as a failure.
    """

    seen: tuple[Seen, ...] = ()
    tail: Tail | None = None
    failures: int = 0
    error: str | None = None
    end: int | None = None
    failed_at: tuple[float, ...] = ()
    trace: str | None = None
    density: float | None = None
    in_vain: int = 0
    moved_at: tuple[float, ...] = ()
    undiscarded: str | None = None
    retry: Retry | None = None
