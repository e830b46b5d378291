"""Connectors in the store: configuration, incarnation, target state, requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Literal

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConnectException, FencedException
from sinksdk.store import Conflict, Store, table
from sinksdk.store.keys import CONNECTORS, config_key, connector_of, connector_prefix
from sinksdk.store.records import ConnectorRecord, TargetState

Order = Literal["restart", "restart_failed", "rebalance", "flush"]

Reconfigure = Callable[[Mapping[str, str] | None], Mapping[str, Any]]
"""Maps the current configuration to a new one; None: there is no connector of that name."""


class ConnectorNotFoundException(ConnectException):
    """No connector has this name."""


class ConnectorExistsException(ConnectException):
    """A connector of this name already exists."""


class ConnectorDeletedException(ConnectException):
    """The connector is being deleted: its name is not free until that is done."""


def snapshot(store: Store, connector: str | None = None) -> Store:
    """A copy of the records of one or all connectors, consistent if the store supports that."""
    return store.snapshot(CONNECTORS if connector is None else connector_prefix(connector))


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


def create(
    store: Store, connector: str, config: Mapping[str, Any], target_state: TargetState = "RUNNING"
) -> ConnectorRecord:
    """Create a connector, a new incarnation of its name.

    Raises:
        ConnectorExistsException: it already exists.
        ConnectorDeletedException: it is being deleted.
    """
    record = _created(config, target_state)
    try:
        return table.write(store, config_key(connector), record, None).value
    except Conflict as error:
        _refuse_deleted(connector, find(store, connector))
        raise ConnectorExistsException(f"connector '{connector}' already exists") from error


def register(store: Store, connector: str, config: Mapping[str, Any]) -> ConnectorRecord:
    """The connector's record, created with this configuration if there is none.

    An existing configuration stays: a driver that fails to claim a generation must not change that of the
    running one.

    Raises:
        ConnectorDeletedException: it is being deleted.
    """
    return _change(store, connector, lambda record: record, otherwise=lambda: _created(config))


def configure(store: Store, connector: str, config: Mapping[str, Any] | Reconfigure) -> ConnectorRecord:
    """Change a connector's configuration, or create the connector. A changed one gets the next version.

    Args:
        config: as written: dotted names, references unresolved. Or a function of the current one: it is
            called again after a concurrent change, so that no change is lost.

    Raises:
        ConnectorDeletedException: it is being deleted.
        Exception: what ``config`` raises; nothing is changed then.
    """
    wanted: Reconfigure = config if callable(config) else lambda _: config

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        config = texts(wanted(record.config))
        if record.config == config:
            return record
        return record.model_copy(update={"config": config, "version": record.version + 1})

    return _change(store, connector, changed, otherwise=lambda: _created(wanted(None)))


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

    def created() -> ConnectorRecord:
        return _created(config).model_copy(update={"claimed": generation})

    return _change(store, connector, changed, otherwise=created)


def aim(store: Store, connector: str, target_state: TargetState) -> ConnectorRecord:
    """Change the target state. Raises ConnectorNotFoundException, ConnectorDeletedException."""
    return _change(store, connector, lambda record: record.model_copy(update={"target_state": target_state}))


def order(store: Store, connector: str, what: Order) -> ConnectorRecord:
    """Request a one-time action. Raises ConnectorNotFoundException, ConnectorDeletedException."""

    def asked(record: ConnectorRecord) -> ConnectorRecord:
        orders = record.orders.model_copy(update={what: getattr(record.orders, what) + 1})
        return record.model_copy(update={"orders": orders})

    return _change(store, connector, asked)


def mark_deleted(store: Store, connector: str, *, force: bool = False) -> ConnectorRecord:
    """Mark a connector as being deleted, irrevocably; ``force``: drop tokens that cannot be published.

    Raises:
        ConnectorNotFoundException: there is none of that name.
    """

    def marked(record: ConnectorRecord) -> ConnectorRecord:
        return record.model_copy(update={"deleted": True, "forced": record.forced or force})

    return _change(store, connector, marked, may_be_deleted=True)


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """A configuration in the store's form: JSON scalars as texts, without keys that have no value."""
    return {key: _as_text(value) for key, value in config.items() if value is not None}


def graceful_timeout(record: ConnectorRecord) -> float:
    """Seconds a connector's tasks have for closing, by its configuration or the default."""
    field = ConnectorConfig.model_fields["graceful_timeout_ms"]
    try:
        return float(record.config.get(str(field.alias), field.default)) / 1000
    except ValueError:  # it could not start with that
        return float(field.default) / 1000


def _change(
    store: Store,
    connector: str,
    changed: Callable[[ConnectorRecord], ConnectorRecord],
    otherwise: Callable[[], ConnectorRecord] | None = None,
    *,
    may_be_deleted: bool = False,
) -> ConnectorRecord:
    """Change or create a record by compare-and-set, repeated after conflicts."""
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


def _created(config: Mapping[str, Any], target_state: TargetState = "RUNNING") -> ConnectorRecord:
    return ConnectorRecord(config=texts(config), incarnation=uuid.uuid4().hex, target_state=target_state)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
