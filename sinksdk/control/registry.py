"""Connectors in the store: configuration, incarnation, target state, requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConnectException, FencedException
from sinksdk.settings.texts import as_text
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import CONNECTORS, config_key, connector_of
from sinksdk.store.records import ConnectorRecord, TargetState


class ConnectorNotFoundException(ConnectException):
    """No connector has this name."""


class ConnectorExistsException(ConnectException):
    """A connector of this name already exists."""


class ConnectorDeletedException(ConnectException):
    """The connector is being deleted: its name is not free until that is done."""


def names(store: Store) -> list[str]:
    """All connectors, sorted, including those being deleted. Raises StoreUnavailable."""
    found = (connector_of(key) for key in store.list(CONNECTORS))
    return sorted(name for name in found if name is not None)


def find(store: Store, connector: str) -> ConnectorRecord:
    """A connector's record. Raises ConnectorNotFoundException, StoreUnavailable."""
    row = table.read(store, config_key(connector), ConnectorRecord)
    if row is None:
        raise ConnectorNotFoundException(f"store {store.url} has no connector '{connector}'")
    return row.value


def register(store: Store, connector: str, config: Mapping[str, Any]) -> ConnectorRecord:
    """The connector's record, created with this configuration if there is none.

    An existing configuration stays: a driver that fails to claim a generation must not change that of the
    running one.

    Raises:
        ConnectorDeletedException: it is being deleted.
    """
    return change(store, connector, lambda record: record, otherwise=lambda: created(config))


def deploy(store: Store, connector: str, config: Mapping[str, Any], generation: int) -> ConnectorRecord:
    """Store a driver's configuration with the target state RUNNING; create the connector if necessary.

    Args:
        generation: the driver's first claim.

    Raises:
        FencedException: a driver with a newer claim has brought its own.
        ConnectorDeletedException: the connector is being deleted.
    """
    wanted = texts(config)

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        if record.claimed > generation:
            raise FencedException(f"connector {connector}: a newer driver has taken over; this one ends")
        version = record.version if record.config == wanted else record.version + 1
        update = {"config": wanted, "version": version, "target_state": "RUNNING", "claimed": generation}
        return record.model_copy(update=update)

    def brought() -> ConnectorRecord:
        return created(config).model_copy(update={"claimed": generation})

    return change(store, connector, changed, otherwise=brought)


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration in the store's form: JSON's values as texts, without keys that have no value."""
    return {key: as_text(value) for key, value in config.items() if value is not None}


def graceful_timeout(record: ConnectorRecord) -> float:
    """Seconds a connector's tasks have for closing, by its configuration or the default."""
    field = ConnectorConfig.model_fields["graceful_timeout_ms"]
    try:
        return float(record.config.get(str(field.alias), field.default)) / 1000
    except ValueError:  # it could not start with that
        return float(field.default) / 1000


def change(
    store: Store,
    connector: str,
    changed: Callable[[ConnectorRecord], ConnectorRecord],
    otherwise: Callable[[], ConnectorRecord] | None = None,
    *,
    may_be_deleted: bool = False,
) -> ConnectorRecord:
    """Change or create a record by compare-and-set, repeated after conflicts.

    Args:
        otherwise: makes the record of a new connector; None: there must be one.

    Raises:
        ConnectorNotFoundException: there is none of that name.
        ConnectorDeletedException: it is being deleted.
    """
    while True:
        row = table.read(store, config_key(connector), ConnectorRecord)
        if row is not None:
            if not may_be_deleted:
                _refuse_deleted(connector, row.value)
            record = changed(row.value)
            if record == row.value:
                return record
        elif otherwise is not None:
            record = otherwise()
        else:
            raise ConnectorNotFoundException(f"store {store.url} has no connector '{connector}'")
        try:
            return table.write(store, config_key(connector), record, row.version if row else None).value
        except Conflict:
            continue


def _refuse_deleted(connector: str, record: ConnectorRecord) -> None:
    if record.deleted:
        raise ConnectorDeletedException(
            f"connector '{connector}' is being deleted; wait until that is done, or let 'sinksdk delete "
            f"{connector}' finish it where no driver is alive"
        )


def created(config: Mapping[str, Any], target_state: TargetState = "RUNNING") -> ConnectorRecord:
    """The record of a new connector, a new incarnation of its name."""
    return ConnectorRecord(config=texts(config), incarnation=uuid.uuid4().hex, target_state=target_state)
