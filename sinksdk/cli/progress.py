"""State and totals of a running connector, collected from its driver's reports."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from sinksdk.cli.output import counted, number
from sinksdk.context import ClosingReason
from sinksdk.control.progress import Listener
from sinksdk.model.measures import LOST
from sinksdk.model.status import PartitionStatus
from sinksdk.offsets import TopicPartition
from sinksdk.store.records import GenerationPlan
from sinksdk.store.reports import SourceProgress

CAUGHT_UP: Final = "caught up"
STOPPED: Final = "stopped"
FAILED: Final = "failed"
REPLACED: Final = "replaced"

_WINDOW: Final = 10.0  # seconds over which a rate is taken
_STARTING: Final = "starting tasks"
_READING: Final = "reading"
_RUNNING: Final = "running"
_CLOSING: Final = "closing"
_WAITING: Final = "waiting for records"
_WAITING_TO_RETRY: Final = "waiting for a retry"


@dataclass(frozen=True, slots=True)
class Amounts:
    """Sums over partitions; None: unknown for all partitions."""

    committed: int | None
    position: int | None
    end: int | None
    lag: int | None
    rate: float
    files: int | None
    size: int | None
    lost: int

    @classmethod
    def of(cls, rows: Sequence[PartitionStatus]) -> Amounts:
        return cls(
            _sum(row.committed for row in rows),
            _sum(row.position for row in rows),
            _sum(row.end for row in rows),
            _sum(row.lag for row in rows) if rows else 0,
            sum(row.rate for row in rows),
            _sum(row.counts.get("files") for row in rows),
            _sum(row.counts.get("bytes") for row in rows),
            sum(row.counts.get(LOST, 0) for row in rows),
        )


@dataclass(frozen=True, slots=True)
class SourceTotals:
    tasks: Mapping[int, SourceProgress] = field(default_factory=dict)
    # Records that generations before that of `tasks` have committed.
    records: int = 0
    transactions: int = 0

    def ended(self, tasks: Mapping[int, SourceProgress]) -> SourceTotals:
        return SourceTotals(
            {},
            self.records + sum(task.records for task in tasks.values()),
            self.transactions + sum(task.transactions for task in tasks.values()),
        )

    def __str__(self) -> str:
        all_of_them = self.ended(self.tasks)
        return committed(all_of_them.records, all_of_them.transactions)

    def with_rate(self) -> str:
        return f"{self}, {number(sum(task.rate for task in self.tasks.values()))} records/s"


def committed(records: int, transactions: int) -> str:
    return f"{counted(records, 'record')} committed in {counted(transactions, 'transaction')}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State and totals of a connector at one time.

    Args:
        rows: by topic and partition; an error stays until the partition succeeds.
        offsets: growth of the commits since the start, gaps between records included.
    """

    generation: int
    state: str
    seconds: float
    rows: Sequence[PartitionStatus]
    total: Amounts
    records: int
    offsets: int
    source: SourceTotals | None = None

    @property
    def has_tasks(self) -> bool:
        return self.state in (_STARTING, _READING, _RUNNING) or self.state.startswith(_CLOSING)


class Rate:
    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def add(self, now: float, total: int) -> None:
        # A smaller total comes from another attempt, which counts from the start.
        if self._samples and total < self._samples[-1][1]:
            self._samples.clear()
        self._samples.append((now, total))
        while len(self._samples) > 1 and self._samples[1][0] <= now - _WINDOW:
            self._samples.popleft()

    def at(self, now: float) -> float:
        if not self._samples:
            return 0.0
        since, before = self._samples[0]
        return (self._samples[-1][1] - before) / max(now - since, 1.0)


class RunProgress(Listener):
    """Keeps the driver's reports. The driver's thread reports, any thread reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = Lock()
        self._started = clock()
        self._generation = 0
        self._state = "starting"
        self._views: dict[TopicPartition, PartitionStatus] = {}
        self._failures: dict[TopicPartition, str] = {}
        self._before: dict[TopicPartition, int] = {}  # records of completed generations
        self._rates: dict[TopicPartition, Rate] = {}
        self._starts: dict[TopicPartition, int] = {}
        self._records = 0  # records of completed generations
        # Records of the running generation; None: no generation runs.
        self._running: dict[TopicPartition, int] | None = None
        self._source: SourceTotals | None = None

    def planned(self, plan: GenerationPlan) -> None:
        with self._lock:
            self._generation = plan.generation
            self._state = _STARTING
            self._add_running()
            self._running = {}
            for planned in (planned for task in plan.tasks for planned in task.ranges):
                self._starts.setdefault(planned.topic_partition, planned.start)

    def progress(self, partitions: Sequence[PartitionStatus]) -> None:
        with self._lock:
            self._update(partitions)
            if any(view.position is not None for view in partitions):
                self._state = _READING if self._state == _STARTING else self._state
            elif not self._generation:
                self._state = _WAITING

    def closing(self, generation: int, reason: ClosingReason) -> None:  # noqa: ARG002 - the listener's
        with self._lock:
            self._state = f"{_CLOSING}: {reason}"

    def ended(self, generation: int, partitions: Sequence[PartitionStatus]) -> None:  # noqa: ARG002 - the listener's
        with self._lock:
            self._update(partitions)
            for view in partitions:
                self._before[view.partition] = self._before.get(view.partition, 0) + view.records
                if view.position is not None and view.error is None:
                    self._failures.pop(view.partition, None)
            self._add_running()
            self._state = _WAITING_TO_RETRY if self._failures else _WAITING

    def tasks(self, tasks: Mapping[int, SourceProgress]) -> None:
        with self._lock:
            before = self._source or SourceTotals()
            self._source = SourceTotals(tasks, before.records, before.transactions)
            if tasks and self._state == _STARTING:
                self._state = _RUNNING

    def tasks_ended(self, generation: int, tasks: Mapping[int, SourceProgress]) -> None:  # noqa: ARG002 - the listener's
        with self._lock:
            self._source = (self._source or SourceTotals()).ended(tasks)
            self._state = _WAITING_TO_RETRY

    def over(self, outcome: str) -> None:
        with self._lock:
            self._state = outcome

    def snapshot(self) -> Snapshot:
        with self._lock:
            now = self._clock()
            rows = [self._row(view, now) for _, view in sorted(self._views.items())]
            return Snapshot(
                self._generation,
                self._state,
                now - self._started,
                rows,
                Amounts.of(rows),
                self._records + sum((self._running or {}).values()),
                self._offsets(),
                self._source,
            )

    def _update(self, partitions: Sequence[PartitionStatus]) -> None:
        now = self._clock()
        self._views = {view.partition: view for view in partitions}
        for view in partitions:
            total = self._before.get(view.partition, 0) + view.records
            self._rates.setdefault(view.partition, Rate()).add(now, total)
            if view.error is not None:
                self._failures[view.partition] = view.error
        if self._running is not None:
            for view in (view for view in partitions if view.position is not None):
                committed, before = view.records - view.tail, self._running.get(view.partition, 0)
                if committed < before:  # another attempt of the task, whose count starts at 0
                    self._records += before
                self._running[view.partition] = committed

    def _add_running(self) -> None:
        self._records += sum((self._running or {}).values())
        self._running = None

    def _offsets(self) -> int:
        views = [self._views[partition] for partition in self._starts if partition in self._views]
        return sum((view.committed or 0) - self._starts[view.partition] for view in views if view.committed)

    def _row(self, view: PartitionStatus, now: float) -> PartitionStatus:
        changed = {"rate": self._rates[view.partition].at(now), "error": self._failures.get(view.partition)}
        return view.model_copy(update=changed)


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
