"""What a connector's generations have measured and counted, added up. It informs: no decision rests on it.

A generation is added when it has ended, by its number, so that none is added twice. What the running one
reports comes on top when somebody looks.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from sinksdk.errors import ConnectException
from sinksdk.records import TopicPartition
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import (
    progress_key,
    progress_prefix,
    totals_key,
)
from sinksdk.store.reports import (
    ConnectorTotals,
    PartitionTotals,
    TaskProgress,
    TaskTotals,
)
from sinksdk.support.logs import Outage
from sinksdk.support.measures import TaskMeasures, added

log = logging.getLogger(__name__)

Counts = Mapping[TopicPartition, Mapping[str, int]]
"""What was counted, by partition and name."""


def with_generation(
    totals: ConnectorTotals, generation: int, measures: Mapping[int, TaskMeasures], counts: Counts
) -> ConnectorTotals:
    """Totals that have this generation in them; unchanged if they had it, or a newer one, before.

    Args:
        totals: as they were.
        generation: its number.
        measures: what each of its tasks has measured.
        counts: what they have counted.
    """
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
    return ConnectorTotals(
        generation=generation,
        tasks=tuple(row for _, row in sorted(tasks.items())),
        partitions=tuple(
            PartitionTotals(topic=p.topic, partition=p.partition, counts=dict(found))
            for p, found in sorted(partitions.items())
        ),
    )


def with_progress(totals: ConnectorTotals, rows: Mapping[int, TaskProgress]) -> ConnectorTotals:
    """Totals with what tasks of newer generations report on top.

    Read the rows before the totals: a generation that ends in between is then in the totals, and never in
    neither.
    """
    newer = {task: row for task, row in rows.items() if row.generation > totals.generation}
    return with_generation(
        totals,
        max((row.generation for row in newer.values()), default=0),
        {task: row.measures for task, row in newer.items()},
        {p.topic_partition: p.counts for row in newer.values() for p in row.partitions},
    )


def read_totals(store: Store, connector: str) -> ConnectorTotals:
    """What the generations that have ended come to. Raises StoreUnavailable."""
    row = table.read(store, totals_key(connector), ConnectorTotals)
    return row.value if row else ConnectorTotals()


class TotalsKeeper:
    """One driver's hold on its connector's totals. What cannot be written is made up for the next time.

    Args:
        store: where they are kept.
        connector: the connector's name.
    """

    def __init__(self, store: Store, connector: str) -> None:
        self._store = store
        self._connector = connector
        self._key = totals_key(connector)
        self._totals: ConnectorTotals | None = None
        self._version: str | None = None
        self._outage = Outage(log, f"keeping the totals of connector {connector}")

    def catch_up(self) -> None:
        """Add what tasks of a driver that ended early have reported. Only after a claim has fenced them."""
        try:
            rows = {}
            for key in self._store.list(progress_prefix(self._connector)):
                found = table.read(self._store, key, TaskProgress)
                if found is not None:
                    rows[int(key.removeprefix(progress_prefix(self._connector)))] = found.value
            row = table.read(self._store, self._key, ConnectorTotals)
            before = row.value if row else ConnectorTotals()
            self._totals, self._version = with_progress(before, rows), row.version if row else None
            if self._totals != before:
                self._write(self._totals)
            self._outage.worked()
        except ConnectException as error:
            self._tell(error)

    def add(self, generation: int, measures: Mapping[int, TaskMeasures], counts: Counts) -> None:
        """A generation has ended."""
        if self._totals is None:
            self.catch_up()
        if self._totals is None:
            return
        self._totals = with_generation(self._totals, generation, measures, counts)
        try:
            self._write(self._totals)
            self._outage.worked()
        except ConnectException as error:
            self._tell(error)

    def _write(self, totals: ConnectorTotals) -> None:
        try:
            self._version = table.write(self._store, self._key, totals, self._version).version
        except Conflict:
            row = table.read(self._store, self._key, ConnectorTotals)
            self._version = row.version if row else None
            if row is not None and row.value.generation >= totals.generation:
                self._totals = row.value  # ours, though no answer came; or a newer driver's, which knows more
                return
            self._version = table.write(self._store, self._key, totals, self._version).version

    def _tell(self, error: ConnectException) -> None:
        self._outage.failed("connector %s: its totals cannot be kept: %s", self._connector, error)


def task_progress(store: Store, connector: str, tasks: int) -> dict[int, TaskProgress]:
    """What tasks 0 to ``tasks`` - 1 reported last, whatever generation it was of. Raises StoreUnavailable."""
    rows = {task: table.read(store, progress_key(connector, task), TaskProgress) for task in range(tasks)}
    return {task: row.value for task, row in rows.items() if row is not None}
