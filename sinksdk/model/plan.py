"""The plan of one partition in one generation."""

from __future__ import annotations

from typing import Any, Final, Self

from sinksdk.model.base import NamedPartition
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
