"""A connector's history: totals, recent commits and failures. No decision depends on it."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from sinksdk.engine.clock import WallClock
from sinksdk.errors import ConnectException
from sinksdk.model.measures import TaskMeasures, added
from sinksdk.model.outcome import Failure, PartitionOutcome, SourceTaskOutcome
from sinksdk.offsets import TopicPartition
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import history_key, progress_key, progress_prefix, totals_key
from sinksdk.store.reports import (
    Bucket,
    ConnectorHistory,
    ConnectorTotals,
    PartitionTotals,
    PastFailure,
    SourceProgress,
    TaskProgress,
    TaskTotals,
)
from sinksdk.support.logs import Outage

BUCKET: Final = 60  # seconds

KEPT: Final = 360  # buckets: six hours

FAILURES: Final = 20

_TRACE: Final = 4_000  # characters of a trace, the last ones: they hold the cause
_INTERVAL: Final = 5.0  # seconds between two writes to a store with fast requests

Counts = Mapping[TopicPartition, Mapping[str, int]]

log = logging.getLogger(__name__)


class Amounts(NamedTuple):
    records: int = 0
    files: int = 0
    bytes: int = 0
    transactions: int = 0

    @classmethod
    def of(cls, outcome: PartitionOutcome) -> Amounts:
        counts = outcome.counts
        return cls(outcome.records - outcome.tail, counts.get("files", 0), counts.get("bytes", 0))

    @classmethod
    def of_task(cls, done: SourceProgress | SourceTaskOutcome) -> Amounts:
        return cls(done.records, transactions=done.transactions)

    def plus(self, more: Amounts) -> Amounts:
        return Amounts(*(a + b for a, b in zip(self, more, strict=True)))

    def since(self, before: Amounts) -> Amounts:
        # A count that has fallen belongs to another attempt, which started at 0; records are counted across
        # attempts.
        return Amounts(*(now - then if now >= then else now for now, then in zip(self, before, strict=True)))


Where = TopicPartition | int


class Growth:
    """Counts a generation's amounts since the last call, so that nothing counts twice."""

    def __init__(self) -> None:
        self._before: dict[Where, Amounts] = {}

    def begin(self) -> None:
        self._before = {}

    def of(self, amounts: Mapping[Where, Amounts]) -> Amounts:
        total = Amounts()
        for where, now in amounts.items():
            total = total.plus(now.since(self._before.get(where, Amounts())))
            self._before[where] = now
        return total


def with_amounts(history: ConnectorHistory, at: float, amounts: Amounts) -> ConnectorHistory:
    bucket = Bucket(start=int(at // BUCKET) * BUCKET, **amounts._asdict())
    return together(history, ConnectorHistory(buckets=(bucket,)))


def with_failures(
    history: ConnectorHistory, at: float, failures: Mapping[Where, Failure]
) -> ConnectorHistory:
    past = (
        PastFailure(
            **({"task": where} if isinstance(where, int) else where._asdict()),
            at=at,
            times=1,
            message=failure.message,
            trace=failure.trace[-_TRACE:],
        )
        for where, failure in failures.items()
    )
    return together(history, ConnectorHistory(failures=tuple(past)))


def together(earlier: ConnectorHistory, later: ConnectorHistory) -> ConnectorHistory:
    """Merge two histories; equal messages become one failure with the sum of ``times``."""
    buckets = {bucket.start: bucket for bucket in earlier.buckets}
    for bucket in later.buckets:
        known = buckets.get(bucket.start)
        buckets[bucket.start] = bucket if known is None else _sum(known, bucket)
    oldest = max(buckets, default=0) - KEPT * BUCKET
    failures: dict[str, PastFailure] = {}
    for failure in (*earlier.failures, *later.failures):
        before = failures.pop(failure.message, None)
        failures[failure.message] = (
            failure if before is None else failure.model_copy(update={"times": failure.times + before.times})
        )
    return ConnectorHistory(
        buckets=tuple(bucket for start, bucket in sorted(buckets.items()) if start > oldest),
        failures=tuple(failures.values())[-FAILURES:],
    )


def _sum(a: Bucket, b: Bucket) -> Bucket:
    amounts = Amounts(a.records, a.files, a.bytes, a.transactions).plus(
        Amounts(b.records, b.files, b.bytes, b.transactions)
    )
    return Bucket(start=a.start, **amounts._asdict())


class HistoryKeeper:
    """Writes a connector's history for its driver; a killed driver's last commits may be missing."""

    def __init__(self, store: Store, connector: str, clock: WallClock) -> None:
        self._row = table.OwnRow(store, history_key(connector), ConnectorHistory)
        self._clock = clock
        # A store with paid requests is written to less often.
        self._interval = max(_INTERVAL, 6 * store.closing_poll)
        self._growth = Growth()
        self._saved = self._history = ConnectorHistory()
        self._is_loaded = False
        self._next = clock.now()
        self._outage = Outage(log, f"keeping the history of connector {connector}")

    def generation_begins(self) -> None:
        self._growth.begin()

    def progress(self, amounts: Mapping[Where, Amounts]) -> None:
        self._count(amounts)
        if self._clock.now() >= self._next:
            self.save()

    def ended(self, amounts: Mapping[Where, Amounts], failures: Mapping[Where, Failure]) -> None:
        self._count(amounts)
        # The failures are written at once, because another driver may run the next generation.
        self._history = with_failures(self._history, self._clock.time(), failures)
        self.save()

    def save(self) -> None:
        if self._history == self._saved:
            return
        self._next = self._clock.now() + self._interval
        try:
            # The history is not read before there is something to add: by then no other driver writes it.
            if not self._is_loaded:
                before = self._row.read()
                self._history = together(before, self._history) if before else self._history
                self._is_loaded = True
            self._row.write(self._history)
            self._saved = self._history
            self._outage.worked()
        except ConnectException as error:
            self._outage.failed("the connector's history cannot be written: %s", error)

    def _count(self, amounts: Mapping[Where, Amounts]) -> None:
        grown = self._growth.of(amounts)
        if grown != Amounts():
            self._history = with_amounts(self._history, self._clock.time(), grown)


def with_generation(
    totals: ConnectorTotals,
    generation: int,
    measures: Mapping[int, TaskMeasures],
    counts: Counts,
    existing: Collection[TopicPartition] | None = None,
) -> ConnectorTotals:
    """Add a generation, unless the totals contain it; counters of vanished partitions become one sum."""
    if generation <= totals.generation:
        return totals
    tasks = {row.task: row for row in totals.tasks}
    for task, last in measures.items():
        before = tasks.get(task)
        total = before.total + last if before else last
        tasks[task] = TaskTotals(task=task, total=total, last=last)
    partitions = {row.topic_partition: row.counts for row in totals.partitions}
    for partition, more in counts.items():
        if more:
            partitions[partition] = added(partitions.get(partition, {}), more)
    vanished: Mapping[str, int] = totals.vanished
    for partition in partitions.keys() - (partitions.keys() if existing is None else existing):
        vanished = added(vanished, partitions.pop(partition))
    return ConnectorTotals(
        generation=generation,
        tasks=tuple(row for _, row in sorted(tasks.items())),
        partitions=tuple(
            PartitionTotals(topic=p.topic, partition=p.partition, counts=dict(found))
            for p, found in sorted(partitions.items())
        ),
        vanished=dict(vanished),
    )


def with_progress(totals: ConnectorTotals, rows: Mapping[int, TaskProgress]) -> ConnectorTotals:
    """Add the reports of newer generations.

    Read the reports before the totals: a generation that ends in between is then in the totals.
    """
    newer = {task: row for task, row in rows.items() if row.generation > totals.generation}
    return with_generation(
        totals,
        max((row.generation for row in newer.values()), default=0),
        {task: row.measures for task, row in newer.items()},
        {p.partition: p.counts for row in newer.values() for p in row.partitions},
    )


def read_history(store: Store, connector: str) -> ConnectorHistory:
    row = table.read(store, history_key(connector), ConnectorHistory)
    return row.value if row else ConnectorHistory()


def read_totals(store: Store, connector: str) -> ConnectorTotals:
    row = table.read(store, totals_key(connector), ConnectorTotals)
    return row.value if row else ConnectorTotals()


class TotalsKeeper:
    """Writes a connector's totals for its driver."""

    def __init__(self, store: Store, connector: str) -> None:
        self._store = store
        self._connector = connector
        self._row = table.OwnRow(store, totals_key(connector), ConnectorTotals)
        self._totals: ConnectorTotals | None = None
        self._outage = Outage(log, f"keeping the totals of connector {connector}")

    def catch_up(self) -> None:
        """Add reports from a killed driver's tasks; only after a claim has fenced them."""
        try:
            rows = {}
            for key in self._store.list(progress_prefix(self._connector)):
                found = table.read(self._store, key, TaskProgress)
                if found is not None:
                    rows[int(key.removeprefix(progress_prefix(self._connector)))] = found.value
            before = self._row.read() or ConnectorTotals()
            self._totals = with_progress(before, rows)
            if self._totals != before:
                self._write(self._totals)
            self._outage.worked()
        except ConnectException as error:
            self._failed(error)

    def add(
        self,
        generation: int,
        measures: Mapping[int, TaskMeasures],
        counts: Counts,
        existing: Collection[TopicPartition] | None = None,
    ) -> None:
        if self._totals is None:
            self.catch_up()
        if self._totals is None:
            return
        self._totals = with_generation(self._totals, generation, measures, counts, existing)
        try:
            self._write(self._totals)
            self._outage.worked()
        except ConnectException as error:
            self._failed(error)

    def _write(self, totals: ConnectorTotals) -> None:
        try:
            self._row.replace(totals)
        except Conflict:
            found = self._row.read()
            if found is not None and found.generation >= totals.generation:
                self._totals = found  # the stored totals, of this driver or a newer one, are more complete
                return
            self._row.replace(totals)

    def _failed(self, error: ConnectException) -> None:
        self._outage.failed("connector %s: its totals cannot be kept: %s", self._connector, error)


def task_progress(store: Store, connector: str, tasks: int) -> dict[int, TaskProgress]:
    rows = {task: table.read(store, progress_key(connector, task), TaskProgress) for task in range(tasks)}
    return {task: row.value for task, row in rows.items() if row is not None}
