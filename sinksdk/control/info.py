"""The state of connectors, read from the store by any process that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from sinksdk.control import registry
from sinksdk.control.history import read_totals, task_progress, with_progress
from sinksdk.control.liveness import SILENCE, is_gone
from sinksdk.control.shown import (
    ConnectorInfo,
    Doubts,
    first_wait,
    has_more_offsets,
    partitions_of,
    sink_tasks,
    source_offsets,
    source_tasks,
)
from sinksdk.control.status import State, read_status
from sinksdk.errors import ConnectException
from sinksdk.plugins.checks import connector_type
from sinksdk.plugins.classes import ConnectorType
from sinksdk.store import Store, StoreUnavailable, newest_plan
from sinksdk.store.keys import CONNECTORS, connector_prefix
from sinksdk.store.records import ConnectorRecord, TaskCountRecord

T = TypeVar("T")

_SILENT: Final = 3 * SILENCE  # seconds; allows for clock skew


def connector_info(store: Store, connector: str, now: float) -> ConnectorInfo:
    store = store.snapshot(connector_prefix(connector))
    record = registry.find(store, connector)
    status = read_status(store, connector)
    is_alive = now - status.heartbeat <= _SILENT and not is_gone(status.driver)
    is_driven = is_alive and status.state != "UNASSIGNED"
    undriven: State = "UNASSIGNED" if record.target_state == "RUNNING" else record.target_state
    state = status.state if is_driven or status.state == "FAILED" else undriven
    count, plan = newest_plan(store, connector)
    planned = count.planned if count else 0
    rows = task_progress(store, connector, len(plan.tasks)) if plan else {}
    totals = with_progress(read_totals(store, connector), rows)
    running = {n: row for n, row in rows.items() if is_driven and row.generation == planned}
    remembered = {p.topic_partition: p for p in status.partitions}
    kind = _type(record, count)
    doubts = Doubts.of(status, now) if is_driven and state == "RUNNING" else Doubts()
    tasks = (
        source_tasks(plan, state, status, running)
        if kind == "source"
        else sink_tasks(plan, state, status, doubts)
    )
    partitions = partitions_of(
        store,
        connector,
        {p.partition: p for row in running.values() for p in row.partitions},
        remembered,
        {row.topic_partition: row.counts for row in totals.partitions},
        tasks=tasks,
        doubts=doubts,
    )
    return ConnectorInfo(
        connector,
        "DELETING" if record.deleted else state,
        record.target_state,
        record.deleted,
        status.driver if is_driven else "",
        count.claimed if count else 0,
        tasks,
        partitions,
        status.missing_topics,
        status.trace or doubts.failure,
        record.config,
        totals.tasks,
        status.heartbeat or None,
        kind,
        source_offsets(rows),
        has_more_offsets(rows),
        status.waiting or (first_wait(partitions) if state == "RUNNING" else None) if is_driven else None,
        status.unavailable if is_driven else (),
        status.unavailable_count if is_driven else 0,
        totals.vanished,
    )


def overdue(store: Store, now: float) -> dict[str, str]:
    found = {}
    for name, status in read_all(store, lambda seen, name: (name, read_status(seen, name)), lambda *_: None):
        is_alive = now - status.heartbeat <= _SILENT and not is_gone(status.driver)
        if is_alive and status.state == "RUNNING" and (why := status.overdue(now)) is not None:
            found[name] = why
    return found


OnDamage = Callable[[str, ConnectException], None]


def read_all(store: Store, read: Callable[[Store, str], T], on_damage: OnDamage | None) -> list[T]:
    """Apply ``read`` to each connector, on one snapshot if the store can take one."""
    seen, found = store.snapshot(CONNECTORS), list[T]()
    for name in registry.names(seen):
        try:
            found.append(read(seen, name))
        except registry.ConnectorNotFoundException:
            continue  # deleted since the names were listed
        except StoreUnavailable:
            raise
        except ConnectException as error:
            if on_damage is None:
                raise
            on_damage(name, error)
    return found


def _type(record: ConnectorRecord, count: TaskCountRecord | None) -> ConnectorType:
    if record.kind in ("sink", "source"):
        return record.kind
    known = connector_type(record.config.get("connector.class", ""))
    is_source = count is not None and count.transactional_tasks is not None
    return "source" if known == "unknown" and is_source else known
