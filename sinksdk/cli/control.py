"""Connectors handled through the store: what an operator wants is written there, and a driver does it."""

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


def asking(action: str, what: str) -> Callable[..., None]:
    """A command that only writes a request: ``action``, a method of the herder."""

    def ask(
        *, name: Name, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
    ) -> None:
        _ask(store, name, action, as_json=as_json)

    ask.__doc__ = f"{what} The connector's driver sees it within a second or two."
    return command(ask)


@command
def restart(
    *,
    name: Name,
    only_failed: Annotated[
        bool,
        typer.Option("--only-failed", help="Only what has failed, at once, with all attempts."),
    ] = False,
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Stop a connector with its tasks, and start it again; what is open is flushed and committed first."""
    _ask(store, name, "restart", as_json=as_json, only_failed=only_failed)


def _ask(store: str, name: str, action: str, *, as_json: bool, **options: bool) -> None:
    """Store a request, and print which process will carry it out."""
    with herding(store) as (herder, _):
        getattr(herder, action)(name, **options)
        driver = herder.info(name).driver
    who = f"driver {driver} sees to it" if driver else "no driver is alive: it holds from the next start on"
    write_result(
        f"{name}: {action} is asked for; {who}",
        {"name": name, "asked": action, "driver": driver},
        as_json=as_json,
    )


@command
def delete(
    *,
    name: Name,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Give up what is committed and cannot be published: it is named in the log."
        ),
    ] = False,
    bootstrap_servers: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The Kafka cluster a sink reads: the group its commits are mirrored to is there.",
        ),
    ] = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete a connector: flush, stop its tasks, publish, let it clean up outside (KIP-883).

    Its driver does it; where none is alive, this command does. Its records are removed last.
    """
    cluster = SourceOptions("", bootstrap_servers, kafka_config).topics() if bootstrap_servers else None
    openers = Openers(connector_to_delete, partial(group_to_delete, cluster))
    with herding(store) as (herder, opened):
        record = herder.delete(name, force=force)
        deadline = time.monotonic() + graceful_timeout(record) + _PATIENCE
        with suppress(ConnectorNotFoundException):
            while herder.connector(name).incarnation == record.incarnation:  # else it was created again
                info = herder.info(name)
                if not info.driver:
                    # Fenced by a driver that was only slow: it finishes the deletion.
                    with suppress(FencedException):
                        WorkerConnector(Environment(opened), name, None, openers, patience=_PATIENCE).run()
                elif time.monotonic() > deadline:
                    why = f" ({info.trace.splitlines()[-1]})" if info.trace else ""
                    message = (
                        f"connector '{name}' is DELETING, but its driver has not finished{why}: look at its "
                        f"log; once it is dead, 'sinksdk delete {name}' finishes"
                    )
                    raise ConnectException(message)
                else:
                    time.sleep(_LOOK)
    write_result(f"{name}: deleted", {"name": name, "deleted": True}, as_json=as_json)


@command
def show_config(
    *,
    name: Name,
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,  # programs can always ask for it
    verbose: Verbose = False,
) -> None:
    """Print a connector's configuration as JSON, with or without --json; secrets hidden."""
    with herding(store) as (herder, _):
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
    """Replace a connector's configuration; what runs closes, commits, and begins again with it."""
    read = read_config_file(file)
    with herding(store) as (herder, _):
        before = herder.connector(name)

        def changed(present: Mapping[str, str] | None) -> dict[str, str]:
            # What `config get` has hidden, and the file has as it was shown, stays as it is.
            config = with_secrets({**read.config, "name": name}, present or {})
            checked = check_config(config)
            if problems := [*read.problems, *still_hidden(config), *checked.problems, *checked.unmet]:
                raise ConfigException(problems)
            return config

        after = herder.configure(name, changed)
    is_new = before.version != after.version
    what = f"is version {after.version} now" if is_new else "is as it was"
    said = {"name": name, "version": after.version, "changed": is_new}
    write_result(f"{name}: the configuration {what}", said, as_json=as_json)
