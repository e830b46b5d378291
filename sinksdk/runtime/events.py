"""What a driver tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from sinksdk.context import ClosingReason
from sinksdk.records import TopicPartition
from sinksdk.store.records import GenerationPlan

LOST: Final = "lost"
"""Count of offsets after a partition's commit that the source no longer had (``on.data.loss=skip``)."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition for a watcher.

    Args:
        partition: which.
        committed: next offset to read after the last commit, None before the first.
        position: offset after the last record read by a running task.
        end: where the source ended when it was last asked.
        records: records delivered in the running (or last) generation.
        counts: what its task counted since this driver started: files, bytes, …; and :data:`LOST`.
        failure: why it ended early.
        tail: of ``records``, those above the commit, which will be read again; known once the
            generation has ended.
    """

    partition: TopicPartition
    committed: int | None
    position: int | None
    end: int
    records: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    tail: int = 0

    @property
    def lag(self) -> int:
        """Offsets that are there and not committed."""
        return max(self.end - (self.committed or 0), 0)


class Listener(Protocol):
    """Watches a driver. Called from the driver's thread; must return soon."""

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        ...

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """Positions have moved, or a moment has passed."""
        ...

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""
        ...

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """A generation has ended."""
        ...


@dataclass(frozen=True, slots=True)
class SourceTaskView:
    """One task of a source for a watcher.

    Args:
        task: its number.
        state: which calls it has had (``SourceTaskState``), or how it ended (``End``).
        records: records it has committed in the running (or last) generation.
        transactions: in how many transactions.
        rate: records per second, lately.
        failure: why it ended early.
    """

    task: int
    state: str
    records: int = 0
    transactions: int = 0
    rate: float = 0.0
    failure: str | None = None


class SourceListener(Protocol):
    """Watches a source's driver. Called from the driver's thread; must return soon."""

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        ...

    def tasks(self, tasks: Sequence[SourceTaskView]) -> None:
        """Tasks have got further, or a moment has passed."""
        ...

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """A running generation was asked to close."""
        ...

    def tasks_ended(self, generation: int, tasks: Sequence[SourceTaskView]) -> None:
        """A generation has ended."""
        ...


class Silent:
    """A listener that does nothing, of sinks and of sources."""

    def planned(self, plan: GenerationPlan) -> None:
        """See :class:`Listener`."""

    def progress(self, partitions: Sequence[PartitionView]) -> None:
        """See :class:`Listener`."""

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """See :class:`Listener`."""

    def ended(self, generation: int, partitions: Sequence[PartitionView]) -> None:
        """See :class:`Listener`."""

    def tasks(self, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`SourceListener`."""

    def tasks_ended(self, generation: int, tasks: Sequence[SourceTaskView]) -> None:
        """See :class:`SourceListener`."""
