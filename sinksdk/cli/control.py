"""Connectors handled through the store: what is wanted is written there, and what is there is shown."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from rich.console import Console

from sinksdk.cli.formatting import moment, number
from sinksdk.cli.output import add_row, print_json, stdout, table, tell, warn, write, write_table
from sinksdk.cli.source import SourceOptions
from sinksdk.cli.source_status import show_source, source_partitions, source_task
from sinksdk.control.checks import check_config
from sinksdk.control.herder import Herder
from sinksdk.control.info import ConnectorInfo, TaskInfo
from sinksdk.control.redaction import redacted, still_hidden, with_secrets
from sinksdk.control.registry import ConnectorNotFoundException, graceful_timeout
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.launch.idle import connector_to_delete, group_to_delete
from sinksdk.runtime.backoff import in_words
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.removal import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.settings.file import read_config_file
from sinksdk.store import Store, open_store
from sinksdk.store.absolute import absolute_store_url

_LOOK: Final = 0.2  # seconds between looks whether a deletion is done
_PATIENCE: Final = 30.0  # seconds beyond what closing may take, until a deletion is reported as not done


@contextmanager
def herding(store: str) -> Iterator[tuple[Herder, Store]]:
    """A herder of a store that must be there, while the block runs.

    Raises:
        ConfigException: there is no such store.
    """
    opened = open_store(absolute_store_url(store))
    try:
        yield Herder(opened), opened
    finally:
        opened.close()


def show_connectors(store: str, *, as_json: bool) -> None:
    """All connectors, a line each."""
    with herding(store) as (herder, _):
        found = herder.infos(lambda name, error: warn([f"{name} is left out: {error}"]))
    if as_json:
        print_json([_summary(info) for info in found])
        return
    if not found:
        write(stdout(), "no connectors")
        return
    rows = table("name", "type", "state", "tasks", "lag", "records/s", "driver")
    for info in found:
        add_row(
            rows, info.name, info.type, _state(info), number(len(info.tasks)), number(info.lag),
            number(info.rate), info.driver or "–",
        )  # fmt: skip
    write_table(stdout(), rows)


def show_status(store: str, name: str, *, as_json: bool) -> None:
    """One connector, its tasks, and its partitions or, of a source, source partitions.

    Raises:
        ConnectorNotFoundException: there is none of that name.
    """
    with herding(store) as (herder, _):
        info = herder.info(name)
    if as_json:
        print_json(_status(info))
        return
    console = stdout()
    driver = info.driver or "no driver is alive"
    write(
        console,
        f"{info.name}: {info.type}, {_state(info)}, generation {info.generation}, {driver}",
        "bold",
    )
    if info.type == "source":
        show_source(console, info)
    else:
        _show_sink(console, info)
    if info.waiting:
        write(console, f"waits for what is away, and goes on by itself: {in_words(info.waiting)}", "yellow")
    if info.missing_topics:
        write(console, f"missing topics: {', '.join(info.missing_topics)}", "red")
    for row in info.unavailable:
        write(
            console,
            f"{row.topic_partition} has no leader since {moment(row.since)}: left out until it has one",
            "yellow",
        )
    if more := info.unavailable_count - len(info.unavailable):
        write(console, f"and {number(more)} more partitions have no leader", "yellow")
    if info.trace:
        write(console, info.trace.rstrip(), "dim")


def _show_sink(console: Console, info: ConnectorInfo) -> None:
    for task in info.tasks:
        write(console, f"task {task.number}: {task.state}: {', '.join(map(str, task.partitions))}")
    rows = table("partition", "committed", "end", "lag", "records/s", "last commit", right=4)
    for p in info.partitions:
        add_row(
            rows, str(p.partition), number(p.committed), number(p.end), number(p.lag), number(p.rate),
            moment(p.committed_at), style="red" if p.error else "",
        )  # fmt: skip
    if info.partitions:
        write_table(console, rows)
    for p in info.partitions:
        if p.error:
            write(console, f"{p.partition}: {p.error}", "red")


def ask(store: str, name: str, wish: str, *, only_failed: bool = False, as_json: bool = False) -> None:
    """Write down what is wanted of a connector, and say who will see to it.

    Args:
        store: where.
        name: the connector's.
        wish: a method of :class:`~sinksdk.control.herder.Herder`.
        only_failed: for ``restart``.
        as_json: say it for programs.

    Raises:
        ConnectorNotFoundException: there is none of that name.
    """
    with herding(store) as (herder, _):
        if wish == "restart":
            herder.restart(name, only_failed=only_failed)
        else:
            getattr(herder, wish)(name)
        driver = herder.info(name).driver
    who = f"driver {driver} sees to it" if driver else "no driver is alive: it holds from the next start on"
    tell(
        f"{name}: {wish} is asked for; {who}",
        {"name": name, "asked": wish, "driver": driver},
        as_json=as_json,
    )


def delete(
    store: str, name: str, source: SourceOptions | None = None, *, force: bool = False, as_json: bool = False
) -> None:
    """Delete a connector: by the driver that runs it, or here where none is alive.

    Args:
        store: where it is.
        name: its name.
        source: where its records come from: the group its commits are mirrored to is there.
        force: what is committed and cannot be published is given up.
        as_json: say it for programs.

    Raises:
        ConfigException: the source's address is none; nothing was deleted.
        ConnectorNotFoundException: there is none of that name.
        UnpublishedException: no driver is alive, and what is committed could not be published here.
        ConnectException: a driver is alive, and has not done it.
    """
    topics = source.topics() if source is not None and source.bootstrap_servers else None
    openers = Openers(connector_to_delete, partial(group_to_delete, topics))
    with herding(store) as (herder, opened):
        record = herder.delete(name, force=force)
        give_up = time.monotonic() + graceful_timeout(record) + _PATIENCE
        while _is_there(herder, name, record.incarnation):
            info = herder.info(name)
            if not info.driver:
                WorkerConnector(Environment(opened), name, None, openers, patience=_PATIENCE).run()
            elif time.monotonic() > give_up:
                why = f" ({info.trace.splitlines()[-1]})" if info.trace else ""
                message = (
                    f"connector '{name}' is DELETING, but its driver has not finished{why}: look at its log; "
                    f"once it is dead, 'sinksdk delete {name}' finishes"
                )
                raise ConnectException(message)
            else:
                time.sleep(_LOOK)
    tell(f"{name}: deleted", {"name": name, "deleted": True}, as_json=as_json)


def show_config(store: str, name: str) -> None:
    """A connector's configuration as JSON, secrets redacted. Raises ConnectorNotFoundException."""
    with herding(store) as (herder, _):
        record = herder.connector(name)
    print_json({"name": name, "config": redacted(record.config)})


def set_config(store: str, name: str, file: Any, *, as_json: bool = False) -> None:
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
    tell(f"{name}: the configuration {what}", said, as_json=as_json)


def _is_there(herder: Herder, name: str, incarnation: str) -> bool:
    """Whether a connector is still the same one; else it is deleted, and may have been created again."""
    try:
        return herder.connector(name).incarnation == incarnation
    except ConnectorNotFoundException:
        return False


def _state(info: ConnectorInfo) -> str:
    return (
        info.state
        if info.state in (info.target_state, "FAILED", "DELETING")
        else f"{info.state}, {info.target_state} wanted"
    )


def _summary(info: ConnectorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "type": info.type,
        "state": info.state,
        "target_state": info.target_state,
        "driver": info.driver,
        "tasks": len(info.tasks),
        "lag": info.lag,
        "committed_at": info.committed_at,
        "rate": round(info.rate, 1),
    }


def _status(info: ConnectorInfo) -> dict[str, Any]:
    return {
        **_summary(info),
        "generation": info.generation,
        "deleted": info.is_deleted,
        "missing_topics": list(info.missing_topics),
        "waiting": info.waiting.as_json() if info.waiting else None,
        "unavailable": [row.as_json() for row in info.unavailable],
        "unavailable_count": info.unavailable_count,
        "trace": info.trace,
        "tasks": [_task(info, task) for task in info.tasks],
        **_partitions(info),
    }


def _partitions(info: ConnectorInfo) -> dict[str, Any]:
    """Those of topics that a sink reads; of a source, its own."""
    if info.type == "source":
        return {"source_partitions": source_partitions(info)}
    return {
        "partitions": [
            {
                "topic": p.partition.topic,
                "partition": p.partition.partition,
                "committed": p.committed,
                "position": p.position,
                "end": p.end,
                "lag": p.lag,
                "rate": round(p.rate, 1),
                "committed_at": p.committed_at,
                "error": p.error,
            }
            for p in info.partitions
        ]
    }


def _task(info: ConnectorInfo, task: TaskInfo) -> dict[str, Any]:
    own = (
        source_task(info, task) if info.type == "source" else {"partitions": list(map(str, task.partitions))}
    )
    return {"id": task.number, "state": task.state, **own, "trace": task.trace}
