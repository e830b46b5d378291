"""Connectors in the store: configuration, incarnation, target state, requests."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

from sinksdk.config import ConnectorConfig
from sinksdk.errors import ConfigException, ConnectException, FencedException
from sinksdk.plugins.checks import connector_type
from sinksdk.settings.texts import as_text
from sinksdk.store import Conflict, Store, newest_plan, table
from sinksdk.store.keys import CONNECTORS, config_key, connector_of
from sinksdk.store.records import ConnectorKind, ConnectorRecord, TargetState

# A name is of one kind only: commits of DataFrames are row numbers, those of a sink are offsets, and those of
# a source are with its records. Commits of another kind would make a connector skip or repeat records.
_WORDS: Final[Mapping[ConnectorKind, str]] = {
    "sink": "a sink connector",
    "source": "a source connector",
    "dataframe": "written by DataFrames, with format('sinksdk')",
}


class ConnectorNotFoundException(ConnectException): ...


class ConnectorExistsException(ConnectException): ...


class ConnectorDeletedException(ConnectException):
    """The connector is being deleted; its name is not free yet."""


class WrongKindException(ConfigException):
    """The name belongs to another kind of writer."""


def names(store: Store) -> list[str]:
    found = (connector_of(key) for key in store.list(CONNECTORS))
    return sorted(name for name in found if name is not None)


def find(store: Store, connector: str) -> ConnectorRecord:
    row = table.read(store, config_key(connector), ConnectorRecord)
    if row is None:
        raise ConnectorNotFoundException(f"store {store.url} has no connector '{connector}'")
    return row.value


def register(
    store: Store, connector: str, config: Mapping[str, Any], kind: ConnectorKind | None = None
) -> ConnectorRecord:
    """Return the connector's record; create it with this configuration if there is none."""
    return change(
        store,
        connector,
        # A driver that fails to claim must not change the configuration of the running one.
        lambda record: with_kind(store, connector, record, kind),
        otherwise=lambda: created(config, kind=kind),
    )


def deploy(
    store: Store,
    connector: str,
    config: Mapping[str, Any],
    generation: int,
    kind: ConnectorKind | None = None,
) -> ConnectorRecord:
    """Store a driver's configuration and the target state RUNNING; ``generation`` is its first claim."""
    wanted = texts(config)

    def changed(record: ConnectorRecord) -> ConnectorRecord:
        if record.claimed > generation:
            raise FencedException(f"connector {connector}: a newer driver has taken over; this one stops")
        version = record.version if record.config == wanted else record.version + 1
        update = {"config": wanted, "version": version, "target_state": "RUNNING", "claimed": generation}
        return with_kind(store, connector, record, kind).model_copy(update=update)

    def brought() -> ConnectorRecord:
        return created(config, kind=kind).model_copy(update={"claimed": generation})

    return change(store, connector, changed, otherwise=brought)


def texts(config: Mapping[str, Any]) -> dict[str, str]:
    """Return a configuration as the store keeps it: with texts as values, without keys of value None."""
    return {key: as_text(value) for key, value in config.items() if value is not None}


def graceful_timeout(record: ConnectorRecord) -> float:
    field = ConnectorConfig.model_fields["graceful_timeout_ms"]
    try:
        return float(record.config.get(str(field.alias), field.default)) / 1000
    except ValueError:  # a connector with such a value could not start
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
        otherwise: creates the record of a new connector; None: there must be one.
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
            f"connector '{connector}' is being deleted; wait until the deletion has completed, or run "
            f"'sinksdk delete {connector}' to complete it if no driver is alive"
        )


def created(
    config: Mapping[str, Any], target_state: TargetState = "RUNNING", *, kind: ConnectorKind | None = None
) -> ConnectorRecord:
    return ConnectorRecord(
        config=texts(config), incarnation=uuid.uuid4().hex, target_state=target_state, kind=kind
    )


def kind_of(store: Store, name: str, record: ConnectorRecord) -> ConnectorKind | None:
    """Return the kind of a name; None: an older version created the record, and no DataFrame was written."""
    if record.kind is not None:
        return record.kind
    _, plan = newest_plan(store, name)
    return "dataframe" if plan is not None and plan.frames is not None else None


def kind_of_class(config: Mapping[str, str]) -> ConnectorKind | None:
    """Return the kind of connector that is configured; None if its class cannot be loaded here."""
    kind = connector_type(config.get("connector.class", ""))
    return None if kind == "unknown" else kind


def with_kind(
    store: Store, name: str, record: ConnectorRecord, kind: ConnectorKind | None
) -> ConnectorRecord:
    """Return the record with its kind set; None: unknown, only DataFrames are refused."""
    known = kind_of(store, name, record)
    if known is None and kind is not None:
        known = kind_of_class(record.config)
    if known == "dataframe" or (known is not None and kind is not None and known != kind):
        raise wrong_kind(store, name, known, kind)
    return record if kind is None or record.kind == kind else record.model_copy(update={"kind": kind})


def expect_connector(store: Store, name: str, record: ConnectorRecord) -> None:
    """Raise WrongKindException if DataFrames are written under the name: no driver runs it."""
    with_kind(store, name, record, None)


def wrong_kind(
    store: Store, name: str, known: ConnectorKind, wanted: ConnectorKind | None
) -> WrongKindException:
    if wanted is None:
        return WrongKindException(
            f"'{name}' in store {store.url} is {_WORDS[known]}: only its queries run and commit under this "
            f"name; nothing was changed. Stop it where its query runs, or delete it"
        )
    return WrongKindException(
        f"'{name}' in store {store.url} is {_WORDS[known]}, and cannot continue as "
        f"{_WORDS[wanted].replace('written by ', '')}: its commits have another meaning, and records would "
        f"be skipped or written twice; choose another 'name', or delete this one first ('sinksdk delete "
        f"{name}')"
    )
