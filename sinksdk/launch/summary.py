"""Totals of a running connector."""

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
    """Totals that a connector has committed since it was started.

    The counts come from the tasks' reports at the end of a generation. Records that a killed task had
    committed are counted by its next attempt; its files and bytes are not. If Spark cancels a job, the last
    reports of its tasks count, which are at most two seconds old.

    Args:
        records: number of committed records.
        partitions: committed records by topic partition of a sink.
        files: number of files, if the connector counts them (``context.count(partition, files=1)``).
        size: bytes of these files, if the connector counts them.
        transactions: number of transactions of a source; None for a sink.
        signal: the signal that has closed ``sinksdk.run``, if any.
    """

    records: int = 0
    partitions: Mapping[TopicPartition, int] = field(default_factory=dict)
    files: int | None = None
    size: int | None = None
    transactions: int | None = None
    signal: signals.Signals | None = None

    def _repr_html_(self) -> str:
        words = [f"{self.records:,} records committed"]
        words += [f"{self.files:,} files"] if self.files is not None else []
        words += [f"{self.transactions:,} transactions"] if self.transactions is not None else []
        words += [f"ended by {self.signal.name}"] if self.signal is not None else []
        return html_table(" · ".join(words), ("partition", "records"), list(self.partitions.items()))


class CommitCounter(Listener):
    def __init__(self, listener: Listener | None = None) -> None:
        self._listener = listener or Listener()
        self._lock = Lock()
        self._records: Counter[TopicPartition] = Counter()
        self._counts: dict[TopicPartition, Mapping[str, int]] = {}
        self._written = 0
        self._transactions: int | None = None
        # Set once the driver reads the operator's requests.
        self.has_started = Event()

    def summary(self) -> Summary:
        with self._lock:
            return Summary(
                self._records.total() + self._written,
                dict(sorted(self._records.items())),
                self._sum("files"),
                self._sum("bytes"),
                self._transactions,
            )

    def planned(self, plan: GenerationPlan) -> None:
        self.has_started.set()
        self._listener.planned(plan)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        self.has_started.set()
        self._listener.progress(partitions)

    def closing(self, generation: int, reason: ClosingReason) -> None:
        self._listener.closing(generation, reason)

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:
        with self._lock:
            for view in partitions:
                self._records[view.partition] += view.records - view.tail
                self._counts[view.partition] = view.counts
        self._listener.ended(generation, partitions)

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        self.has_started.set()
        self._listener.tasks(tasks)

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:
        with self._lock:
            self._written += sum(task.records for task in tasks.values())
            self._transactions = (self._transactions or 0) + sum(task.transactions for task in tasks.values())
        self._listener.tasks_ended(generation, tasks)

    def _sum(self, counter: str) -> int | None:
        known = [counts[counter] for counts in self._counts.values() if counter in counts]
        return sum(known) if known else None
