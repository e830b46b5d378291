"""The commands that handle connectors through the store, from any machine that reaches it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from sinksdk.cli.options import DEFAULT_STORE, KafkaConfig, Verbose
from sinksdk.cli.output import exit_on_error

Name = Annotated[str, typer.Argument(metavar="NAME", help="The connector's name.", show_default=False)]
StoreUrl = Annotated[
    str, typer.Option("--store", metavar="URL", help="Where the connector is kept, as 'sinksdk run' has it.")
]
TopicDirectory = Annotated[
    str,
    typer.Option(
        "--topic-directory",
        metavar="DIR",
        help="Of a source: the topic directory that it writes, and that has its offsets.",
        show_default=False,
    ),
]
BootstrapServers = Annotated[
    str,
    typer.Option(
        metavar="HOST:PORT",
        help="Of a source: the Kafka cluster that it writes, instead.",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="For programs.")]

offsets_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show, alter or reset what is committed."
)
config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show or replace a configuration.")


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", short_help="List connectors.")(list_command)
    app.command("status", short_help="Show a connector, its tasks and partitions.")(status_command)
    for wish, short in _WISHES.items():
        app.command(wish, short_help=short)(_asking(wish, short))
    app.command("restart", short_help="Stop a connector and start it again.")(restart_command)
    app.command("delete", short_help="Delete a connector, and what it has outside.")(delete_command)
    app.add_typer(offsets_app, name="offsets")
    app.add_typer(config_app, name="config")


_WISHES = {
    "pause": "Close what runs, and read nothing until it is resumed.",
    "resume": "Let a paused or stopped connector run again.",
    "stop": "As pause; offsets may be altered then.",
    "rebalance": "Flush, commit, and assign the work anew.",
    "flush": "Commit everything there now, tails and open transactions included.",
}


def _asking(wish: str, what: str) -> Callable[..., None]:
    def command(
        *, name: Name, store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
    ) -> None:
        with exit_on_error(verbose=verbose):
            from sinksdk.cli.control import ask

            ask(store, name, wish, as_json=as_json)

    command.__doc__ = f"{what} The connector's driver sees it within a second or two."
    return command


def list_command(
    *, store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """List connectors: type, state, tasks, lag (of sinks), records per second, and who drives them."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import show_connectors

        show_connectors(store, as_json=as_json)


def status_command(
    *, name: Name, store: StoreUrl = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show a connector: its tasks, its partitions with commit, end, lag and rate, and the last errors.

    Of a source: what its tasks have committed, and how far they have read their source partitions.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import show_status

        show_status(store, name, as_json=as_json)


def restart_command(
    *,
    name: Name,
    only_failed: Annotated[
        bool,
        typer.Option("--only-failed", help="Only what has failed, at once, with all attempts."),
    ] = False,
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Stop a connector with its tasks, and start it again; what is open is flushed and committed first."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import ask

        ask(store, name, "restart", only_failed=only_failed, as_json=as_json)


def delete_command(
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
            show_default=False,
        ),
    ] = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Delete a connector: flush, stop its tasks, publish, let it clean up outside (KIP-883).

    Its driver does it; where none is alive, this command does. Its records are removed last.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import delete
        from sinksdk.cli.source import SourceOptions

        source = SourceOptions("", bootstrap_servers, kafka_config)
        delete(store, name, source, force=force, as_json=as_json)


@offsets_app.command("show")
def show_offsets_command(
    *,
    name: Name,
    topic_directory: TopicDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Show the next offset to read of each partition; of a source, the offset of each source partition.

    A source's offsets are where its records go: say where that is, as 'sinksdk run' is told.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.offsets import show_offsets
        from sinksdk.cli.source import SourceOptions

        topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
        show_offsets(store, name, topics, as_json=as_json)


@offsets_app.command("alter")
def alter_offsets_command(
    *,
    name: Name,
    changes: Annotated[list[str], typer.Argument(metavar="PARTITION=OFFSET...", show_default=False)],
    topic_directory: TopicDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Commit other offsets, of a connector that is stopped: 'orders-0=1200'; 'orders-0=' forgets a commit.

    Where topics are need not be said of a sink; if it is, offsets are checked against what is there. Of a
    source it must be, and both are JSON objects: '{"file":"a"}={"byte":8}'; '{"file":"a"}=' has it read anew.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.offsets import alter_offsets
        from sinksdk.cli.source import SourceOptions

        topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
        alter_offsets(store, name, changes, topics, as_json=as_json)


@offsets_app.command("reset")
def reset_offsets_command(
    *,
    name: Name,
    topic_directory: TopicDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Forget everything that is committed, of a connector that is stopped."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.offsets import reset_offsets
        from sinksdk.cli.source import SourceOptions

        topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
        reset_offsets(store, name, topics, as_json=as_json)


@config_app.command("get")
def get_config_command(
    *,
    name: Name,
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,  # noqa: ARG001 - so that programs can always ask for it
    verbose: Verbose = False,
) -> None:
    """Print a connector's configuration as JSON, with or without --json; secrets hidden."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import show_config

        show_config(store, name)


@config_app.command("set")
def set_config_command(
    *,
    name: Name,
    file: Annotated[Path, typer.Argument(metavar="CONFIG.json", show_default=False)],
    store: StoreUrl = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replace a connector's configuration; what runs closes, commits, and begins again with it."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import set_config

        set_config(store, name, file, as_json=as_json)
