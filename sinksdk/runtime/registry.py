"""Connectors as the store knows them: configuration, incarnation, target state."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from sinksdk.store import Conflict, Store, table
from sinksdk.store.records import ConnectorRecord, config_key


def configure(store: Store, connector: str, config: Mapping[str, Any]) -> ConnectorRecord:
    """Make the store's configuration equal to this one and the target state RUNNING.

    A name that is not there yet is created as a new incarnation; a changed configuration gets the
    next version.

    Args:
        config: as written: dotted names, references unresolved.
    """
    wanted = {key: _as_text(value) for key, value in config.items() if value is not None}
    while True:
        row = table.read(store, config_key(connector), ConnectorRecord)
        if row is None or row.value.deleted:
            record = ConnectorRecord(config=wanted, incarnation=uuid.uuid4().hex)
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


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
