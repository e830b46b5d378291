"""How connectors are doing, for whoever asks: read from the store, by anybody who reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from sinksdk.control import registry
from sinksdk.control.checks import connector_type
from sinksdk.control.history import read_history, read_totals, task_progress, with_progress
from sinksdk.control.liveness import SILENCE, is_gone
from sinksdk.control.shown import (
    ConnectorInfo,
    first_wait,
    has_more_offsets,
    partitions_of,
    sink_tasks,
    source_offsets,
    source_tasks,
)
from sinksdk.control.status import State, read_status
from sinksdk.errors import ConnectException
from sinksdk.settings.plugins import ConnectorType
from sinksdk.store import Store, StoreUnavailable, newest_plan
from sinksdk.store.records import ConnectorRecord, TaskCountRecord
from sinksdk.store.reports import ConnectorHistory

T = TypeVar("T")

_SILENT: Final = 3 * SILENCE
"""Seconds without a heartbeat after which nobody drives a connector; clocks may differ by some of it."""


def connector_info(store: Store, connector: str, now: float) -> ConnectorInfo:
    """How a connector is doing.

    Args:
        now: seconds since the epoch.

    Raises:
        ConnectorNotFoundException: there is none of that name.
    """
    store = registry.snapshot(store, connector)
    record = registry.find(store, connector)
    status = read_status(store, connector)
    is_alive = now - status.heartbeat <= _SILENT and not is_gone(status.driver)
    is_driven = is_alive and status.state != "UNASSIGNED"
    state: State = status.state if is_driven or status.state == "FAILED" else _undriven(record)
    count, plan = newest_plan(store, connector)
    planned = count.planned if count else 0
    rows = task_progress(store, connector, len(plan.tasks)) if plan else {}
    totals = with_progress(read_totals(store, connector), rows)
    running = {n: row for n, row in rows.items() if is_driven and row.generation == planned}
    remembered = {p.topic_partition: p for p in status.partitions}
    partitions = partitions_of(
        store,
        connector,
        {p.topic_partition: p for row in running.values() for p in row.partitions},
        remembered,
        {row.topic_partition: row.counts for row in totals.partitions},
    )
    kind = _type(record, count)
    return ConnectorInfo(
        connector,
        "DELETING" if record.deleted else state,
        record.target_state,
        record.deleted,
        status.driver if is_driven else "",
        count.claimed if count else 0,
        source_tasks(plan, state, status, running) if kind == "source" else sink_tasks(plan, state, status),
        partitions,
        status.missing_topics,
        status.trace,
        record.config,
        totals.tasks,
        status.heartbeat or None,
        kind,
        source_offsets(rows),
        has_more_offsets(rows),
        status.waiting or (first_wait(partitions) if state == "RUNNING" else None) if is_driven else None,
        status.unavailable if is_driven else (),
        status.unavailable_count if is_driven else 0,
    )


OnDamage = Callable[[str, ConnectException], None]
"""Told of a connector whose records are damaged, and what is wrong."""


def connector_infos(store: Store, now: float, on_damage: OnDamage | None = None) -> list[ConnectorInfo]:
    """How all connectors are doing, by name; those that are being deleted are among them.

    Args:
        now: seconds since the epoch.
        on_damage: called for each whose records are damaged; None: that is raised.

    Raises:
        StoreUnavailable: the store does not answer.
    """
    return _of_all(store, lambda seen, name: connector_info(seen, name, now), on_damage)


def connector_reports(
    store: Store, now: float, on_damage: OnDamage | None = None
) -> list[tuple[ConnectorInfo, ConnectorHistory]]:
    """How all connectors are doing, and what they did lately; otherwise as :func:`connector_infos`."""

    def look(seen: Store, name: str) -> tuple[ConnectorInfo, ConnectorHistory]:
        return connector_info(seen, name, now), read_history(seen, name)

    return _of_all(store, look, on_damage)


def _of_all(store: Store, look: Callable[[Store, str], T], on_damage: OnDamage | None) -> list[T]:
    """What a look at each connector finds, all of them at one moment where the store can do that."""
    seen, found = registry.snapshot(store), list[T]()
    for name in registry.names(seen):
        try:
            found.append(look(seen, name))
        except registry.ConnectorNotFoundException:
            continue  # its deletion was done while we looked
        except StoreUnavailable:
            raise
        except ConnectException as error:
            if on_damage is None:
                raise
            on_damage(name, error)
    return found


def _type(record: ConnectorRecord, count: TaskCountRecord | None) -> ConnectorType:
    known = connector_type(record.config.get("connector.class", ""))
    is_source = count is not None and count.transactional_tasks is not None
    return "source" if known == "unknown" and is_source else known


def _undriven(record: ConnectorRecord) -> State:
    """Of a connector that no process drives: a stopped one is stopped, one that shall run is nobody's."""
    return "UNASSIGNED" if record.target_state == "RUNNING" else record.target_state
