"""What a connector has committed since it was started."""

from __future__ import annotations

import signal as signals
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Event, Lock

from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.model.status import PartitionStatus
from sinksdk.offsets import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress
from sinksdk.support.tables import html_table


@dataclass(frozen=True, slots=True)
class Summary:
    """What a connector has committed since it was started.

    Counts come from tasks' reports at the end of their generation. Records that a killed task had committed
    are counted by its next attempt; its files and bytes are not. Where Spark gives a whole job up, what its
    tasks have told last, at most two seconds before, is all that is counted.

    Args:
        records: records committed; of a source, written.
        partitions: the same by topic partition of a sink.
        files: files written, if the connector counts any (``context.count(partition, files=1)``).
        size: their bytes, likewise.
        transactions: of a source, in how many transactions; None of a sink.
        signal: the signal that has ended ``sinksdk.run``, if one has.
    """

    records: int = 0
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    files: int | None = None
    size: int | None = None
    transactions: int | None = None
    signal: signals.Signals | None = None

    def _repr_html_(self) -> str:
        """In a notebook: a table."""
        words = [f"{self.records:,} records committed"]
        words += [f"{self.files:,} files"] if self.files is not None else []
        words += [f"{self.transactions:,} transactions"] if self.transactions is not None else []
        words += [f"ended by {self.signal.name}"] if self.signal is not None else []
        return html_table(" · ".join(words), ("partition", "records"), list(self.partitions.items()))


class ErrorCounter(Listener):
    """A listener that counts commits, and passes all calls on.

    Args:
        listener: gets all calls.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener or Listener()
        self._lock = Lock()
        self._records: Counter[TopicPartition] = Counter()
        self._counts: dict[TopicPartition, Mapping[str, int]] = {}
        self._written = 0
        self._transactions: int | None = None
        self.begun = Event()
        """Set once the driver runs: from then on it reads the operator's requests."""

    def summary(self) -> Summary:
        """What was committed by the generations that have ended."""
        with self._lock:
            return Summary(
                self._records.total() + self._written,
                dict(sorted(self._records.items())),
                self._sum("files"),
                self._sum("bytes"),
                self._transactions,
            )

    def planned(self, plan: GenerationPlan) -> None:
        """A generation begins."""
        self.begun.set()
        self._listener.planned(plan)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        """Positions have moved, or a moment has passed."""
        self.begun.set()
        self._listener.progress(partitions)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        """The generation was asked to close."""
        self._listener.closing(generation, reason)

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        """The generation has ended."""
        with self._lock:
            for view in partitions:
                self._records[view.partition] += view.records - view.tail
                self._counts[view.partition] = view.counts
        self._listener.ended(generation, partitions)

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        """A source's tasks have got further, or a moment has passed."""
        self.begun.set()
        self._listener.tasks(tasks)

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        """A source's generation has ended."""
        with self._lock:
            self._written += sum(task.records for task in tasks.values())
            self._transactions = (self._transactions or 0) + sum(task.transactions for task in tasks.values())
        self._listener.tasks_ended(generation, tasks)

    def _sum(self, counter: str) -> int | None:
        """Of the partitions that count it; None if none does."""
        known = [counts[counter] for counts in self._counts.values() if counter in counts]
        return sum(known) if known else None
