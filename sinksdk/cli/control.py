"""Connectors handled through the store: what an operator wants is written there, and a driver does it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from sinksdk.cli.output import print_json, write_result
from sinksdk.cli.source import SourceOptions
from sinksdk.control.checks import check_config, redacted, still_hidden, with_secrets
from sinksdk.control.herder import Herder
from sinksdk.control.registry import ConnectorNotFoundException, graceful_timeout
from sinksdk.errors import ConfigException, ConnectException, FencedException
from sinksdk.launch.idle import connector_to_delete, group_to_delete
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.settings.file import read_config_file
from sinksdk.store import Store, absolute_store_url, open_store

_LOOK: Final = 0.2  # seconds between checks whether a deletion is done
_PATIENCE: Final = 30.0  # seconds beyond what closing may take, until a deletion is reported as not done


@contextmanager
def herding(store: str) -> Iterator[tuple[Herder, Store]]:
    """A herder of a store, while the block runs. Raises ConfigException: there is no such store."""
    opened = open_store(absolute_store_url(store))
    try:
        yield Herder(opened), opened
    finally:
        opened.close()


def ask(store: str, name: str, action: str, *, only_failed: bool = False, as_json: bool = False) -> None:
    """Store a request for a connector, and print which process will carry it out.

    Args:
        action: a method of :class:`~sinksdk.control.herder.Herder`.
        only_failed: for ``restart``.

    Raises:
        ConnectorNotFoundException: there is none of that name.
    """
    with herding(store) as (herder, _):
        if action == "restart":
            herder.restart(name, only_failed=only_failed)
        else:
            getattr(herder, action)(name)
        driver = herder.info(name).driver
    who = f"driver {driver} sees to it" if driver else "no driver is alive: it holds from the next start on"
    write_result(
        f"{name}: {action} is asked for; {who}",
        {"name": name, "asked": action, "driver": driver},
        as_json=as_json,
    )


def delete(store: str, name: str, source: SourceOptions, *, force: bool, as_json: bool) -> None:
    """Delete a connector: by the driver that runs it, or here where none is alive.

    Args:
        source: the Kafka cluster, if any, that has the consumer group its commits are synced to.
        force: delete it even if committed tokens cannot be published.

    Raises:
        ConfigException: the source's address is none; nothing was deleted.
        ConnectorNotFoundException: there is none of that name.
        UnpublishedException: no driver is alive, and committed tokens could not be published here.
        ConnectException: a driver is alive, and has not done it.
    """
    openers = Openers(
        connector_to_delete, partial(group_to_delete, source.topics() if source.bootstrap_servers else None)
    )
    with herding(store) as (herder, opened):
        record = herder.delete(name, force=force)
        deadline = time.monotonic() + graceful_timeout(record) + _PATIENCE
        while _is_there(herder, name, record.incarnation):
            info = herder.info(name)
            if not info.driver:
                with suppress(FencedException):  # by a driver that was only slow: it finishes the deletion
                    WorkerConnector(Environment(opened), name, None, openers, patience=_PATIENCE).run()
            elif time.monotonic() > deadline:
                why = f" ({info.trace.splitlines()[-1]})" if info.trace else ""
                message = (
                    f"connector '{name}' is DELETING, but its driver has not finished{why}: look at its log; "
                    f"once it is dead, 'sinksdk delete {name}' finishes"
                )
                raise ConnectException(message)
            else:
                time.sleep(_LOOK)
    write_result(f"{name}: deleted", {"name": name, "deleted": True}, as_json=as_json)


def _is_there(herder: Herder, name: str, incarnation: str) -> bool:
    """Whether a connector is still the same one; else it is deleted, and may have been created again."""
    try:
        return herder.connector(name).incarnation == incarnation
    except ConnectorNotFoundException:
        return False


def show_config(store: str, name: str) -> None:
    """A connector's configuration as JSON, secrets redacted. Raises ConnectorNotFoundException."""
    with herding(store) as (herder, _):
        record = herder.connector(name)
    print_json({"name": name, "config": redacted(record.config)})


def set_config(store: str, name: str, file: Path, *, as_json: bool) -> None:
    """Replace a connector's configuration; one that could not start is refused.

    What :func:`show_config` has hidden and the file has as it was shown stays as it is.

    Raises:
        ConfigException: every problem at once.
        ConnectorNotFoundException: there is none of that name.
    """
    read = read_config_file(file)
    with herding(store) as (herder, _):
        before = herder.connector(name)

        def changed(present: Mapping[str, str] | None) -> dict[str, str]:
            config = with_secrets({**read.config, "name": name}, present or {})
            if problems := [*read.problems, *still_hidden(config), *check_config(config).problems]:
                raise ConfigException(problems)
            return config

        after = herder.configure(name, changed)
    is_new = before.version != after.version
    what = f"is version {after.version} now" if is_new else "is as it was"
    said = {"name": name, "version": after.version, "changed": is_new}
    write_result(f"{name}: the configuration {what}", said, as_json=as_json)
