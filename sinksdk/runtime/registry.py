"""Connectors as the store knows them: configuration, incarnation, target state."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sinksdk.store import Conflict, Store, table
from sinksdk.store.records import ConnectorRecord, config_key


def register(store: Store, connector: str, config: Mapping[str, Any]) -> ConnectorRecord:
    """The connector's record; a name that is not there yet is created with this configuration.

    An existing configuration stays as it is: a driver that does not come to claim a generation must
    change nothing for the one that runs.
    """
    while True:
        row = table.read(store, config_key(connector), ConnectorRecord)
        if row is not None and not row.value.deleted:
            return row.value
        try:
            return table.write(
                store, config_key(connector), _created(config), row.version if row else None
            ).value
        except Conflict:
            continue  # somebody else creates it too: look what became of it


def configure(store: Store, connector: str, config: Mapping[str, Any]) -> ConnectorRecord:
    """Make the store's configuration equal to this one and the target state RUNNING.

    A name that is not there yet is created as a new incarnation; a changed configuration gets the
    next version.

    Args:
        config: as written: dotted names, references unresolved.
    """
    wanted = _texts(config)
    while True:
        row = table.read(store, config_key(connector), ConnectorRecord)
        if row is None or row.value.deleted:
            record = _created(config)
        elif row.value.config != wanted:
            record = row.value.model_copy(
                update={"config": wanted, "version": row.value.version + 1, "target_state": "RUNNING"}
            )
        elif row.value.target_state != "RUNNING":
            record = row.value.model_copy(update={"target_state": "RUNNING"})
        else:
            return row.value
        try:
            return table.write(store, config_key(connector), record, row.version if row else None).value
        except Conflict:
            continue  # somebody else configures it too: the last one holds


def _created(config: Mapping[str, Any]) -> ConnectorRecord:
    return ConnectorRecord(config=_texts(config), incarnation=uuid.uuid4().hex)


def _texts(config: Mapping[str, Any]) -> dict[str, str]:
    return {key: _as_text(value) for key, value in config.items() if value is not None}


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
