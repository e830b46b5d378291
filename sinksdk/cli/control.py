"""Commands that store an operator's request, which the connector's driver applies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from sinksdk.cli.options import DEFAULT_STORE, AsJson, KafkaConfig, KeptIn, Name, SourceOptions, Verbose
from sinksdk.cli.output import command, print_json, write_result
from sinksdk.control.herder import Herder
from sinksdk.control.registry import ConnectorNotFoundException, graceful_timeout
from sinksdk.errors import ConfigException, ConnectException, FencedException
from sinksdk.launch.idle import connector_to_delete, group_to_delete
from sinksdk.plugins.checks import check_config, redacted, still_hidden, with_secrets
from sinksdk.runtime.environment import Environment
from sinksdk.runtime.idle import Openers
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.settings.file import read_config_file
from sinksdk.store import Store, absolute_store_url, open_store

_POLL: Final = 0.2  # seconds between checks whether the deletion has completed
_PATIENCE: Final = 30.0  # seconds beyond the graceful timeout after which a deletion counts as hanging


@contextmanager
def open_herder(store: str) -> Iterator[tuple[Herder, Store]]:
    opened = open_store(absolute_store_url(store))
    try:
        yield Herder(opened), opened
    finally:
        opened.close()


def request_command(action: str, what: str) -> Callable[..., None]:
    def request(
        *, name: Name, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
    ) -> None:
        _request(store, name, action, as_json=as_json)

    request.__doc__ = f"{what} The connector's driver applies it within a second or two."
    return command(request)


@command
def restart(
    *,
    name: Name,
    only_failed: Annotated[
        bool,
        typer.Option(
            "--only-failed", help="Restart only failed partitions and tasks, at once, with all attempts."
        ),
    ] = False,
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Stop a connector and its tasks after flushing and committing, and start it again."""
    _request(store, name, "restart", as_json=as_json, only_failed=only_failed)


def _request(store: str, name: str, action: str, *, as_json: bool, **options: bool) -> None:
    with open_herder(store) as (herder, _):
        getattr(herder, action)(name, **options)
        driver = herder.info(name).driver
    effect = f"driver {driver} applies it" if driver else "no driver is alive: the next one applies it"
    write_result(
        f"{name}: {action} requested; {effect}",
        {"name": name, "requested": action, "driver": driver},
        as_json=as_json,
    )


@command
def delete(
    *,
    name: Name,
    force: Annotated[
        bool,
        typer.Option("--force", help="Give up commits that cannot be published; the log lists them."),
    ] = False,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Kafka cluster of the consumer group to which a sink's commits are mirrored; deletes that "
            "group.",
        ),
    ] = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete a connector: flush, stop its tasks, publish, and let it clean up at its destination (KIP-883).

    The connector's driver does this; without a living driver, this command does. The connector's records in
    the store are removed last.
    """
    cluster = SourceOptions("", bootstrap_servers, kafka_config).topics() if bootstrap_servers else None
    openers = Openers(connector_to_delete, partial(group_to_delete, cluster))
    with open_herder(store) as (herder, opened):
        record = herder.delete(name, force=force)
        deadline = time.monotonic() + graceful_timeout(record) + _PATIENCE
        with suppress(ConnectorNotFoundException):
            # Another incarnation means that the connector was deleted and created again.
            while herder.connector(name).incarnation == record.incarnation:
                info = herder.info(name)
                if not info.driver:
                    # A driver that was only slow may fence this one; then it completes the deletion.
                    with suppress(FencedException):
                        WorkerConnector(Environment(opened), name, None, openers, patience=_PATIENCE).run()
                elif time.monotonic() > deadline:
                    why = f" ({info.trace.splitlines()[-1]})" if info.trace else ""
                    raise ConnectException(
                        f"connector '{name}' is DELETING, but its driver has not completed this{why}: check "
                        f"the driver's log; once the driver is dead, run 'sinksdk delete {name}' again"
                    )
                else:
                    time.sleep(_POLL)
    write_result(f"{name}: deleted", {"name": name, "deleted": True}, as_json=as_json)


@command
def show_config(
    *,
    name: Name,
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,  # accepted and ignored, so that programs can pass --json to every command
    verbose: Verbose = False,
) -> None:
    """Print a connector's configuration as JSON, with or without --json; secrets are hidden."""
    with open_herder(store) as (herder, _):
        record = herder.connector(name)
    print_json({"name": name, "config": redacted(record.config)})


@command
def set_config(
    *,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="CONFIG.json")],
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replace a connector's configuration; a running connector flushes, commits and restarts with it."""
    read = read_config_file(file)
    with open_herder(store) as (herder, _):
        before = herder.connector(name)

        def changed(present: Mapping[str, str] | None) -> dict[str, str]:
            # Secrets that the file has as `config get` hides them keep their stored values.
            config = with_secrets({**read.config, "name": name}, present or {})
            checked = check_config(config)
            if problems := [*read.problems, *still_hidden(config), *checked.problems, *checked.unmet]:
                raise ConfigException(problems)
            return config

        after = herder.configure(name, changed)
    is_new = before.version != after.version
    result = {"name": name, "version": after.version, "changed": is_new}
    text = f"replaced by version {after.version}" if is_new else "unchanged"
    write_result(f"{name}: configuration {text}", result, as_json=as_json)
