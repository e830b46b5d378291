"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sinksdk.cli.options import (
    DEFAULT_STORE,
    AsJson,
    BootstrapServers,
    Conf,
    KafkaConfig,
    KeptIn,
    LogFormat,
    LogFormats,
    Master,
    Name,
    SourceDirectory,
    StoreUrl,
    TargetDirectory,
    TargetServers,
    Verbose,
    log_settings,
)
from sinksdk.cli.output import exit_on_error

app = typer.Typer(
    name="sinksdk",
    help="Run Kafka-Connect-style sink connectors on Spark, exactly once.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode=None,
)

Config = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG.json",
        help='The connector\'s configuration: {"name": …, "config": {…}}, flat JSON, or .properties.',
        show_default=False,
    ),
]


@app.command("run", short_help="Run a connector until it is stopped or has caught up.")
def run_command(  # its parameters are the options
    *,
    config: Config,
    source_directory: SourceDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    master: Master = None,
    conf: Conf = None,
    until_caught_up: Annotated[
        bool,
        typer.Option("--until-caught-up", help="End when everything there now is committed, tails included."),
    ] = False,
    log_format: LogFormat = LogFormats.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run a connector: until it is stopped (Ctrl-C, SIGTERM), or has caught up.

    Stopping flushes and commits partial batches; a second signal stops at once. Nothing is lost either
    way. Exit codes: 0 done or stopped, 1 failed, 2 bad configuration, 3 a newer driver has taken over, 4
    a topic is missing.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.run import run
        from sinksdk.cli.source import SourceOptions

        source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
        logs = log_settings(
            log_format, verbose=verbose, level="INFO" if log_format is LogFormats.JSON else "WARNING"
        )
        place = source.place(store, master=master, conf=conf or ())
        run(config, place, logs, until_caught_up=until_caught_up)


@app.command("server", short_help="Run all connectors of a store, with Kafka Connect's REST interface.")
def server_command(  # its parameters are the options
    *,
    source_directory: SourceDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    master: Master = None,
    places: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="How many tasks of all connectors run at the same time on a local master; four per core by "
            "default.",
            show_default=False,
        ),
    ] = None,
    conf: Conf = None,
    host: Annotated[str, typer.Option(help="Address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen at.")] = 8083,
    credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Who may ask: a token or USER:PASSWORD a line. Needed where other machines reach the port.",
            show_default=False,
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="A name of this server, as a proxy in front has it; may be repeated."
        ),
    ] = None,
    config_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Environment variables that configurations may name as ${env:NAME}, as in 'SINK_*'; may be "
            "repeated.",
        ),
    ] = None,
    config_files: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder with files that configurations may name as ${file:/path:key}; may be repeated.",
        ),
    ] = None,
    log_format: LogFormat = LogFormats.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run all connectors of a store in one process, with Kafka Connect's REST interface.

    Connectors are created, changed and deleted through it, or by the other commands. A connector that another
    driver runs is left to it. Stopping flushes and commits everything.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.server import RestOptions, serve
        from sinksdk.cli.source import SourceOptions

        source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
        serve(
            source.place(store, master=master, conf=conf or (), is_shared=True, places=places),
            RestOptions(host, port, credentials, allowed_host or (), config_env or (), config_files or ()),
            log_settings(log_format, verbose=verbose, level="INFO"),
        )


@app.command("validate", short_help="Check a configuration.")
def validate_command(
    *,
    config: Config,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Check a configuration: what becomes of each key, and every problem at once.

    A key means the same as in Kafka Connect, differs, is ignored, or is unsupported (then it would not
    start); for each it is said why, or what to do instead. Nothing is started or connected to. Exit codes:
    0 it would start, 2 it would not.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.validate import validate

        validate(config, as_json=as_json)


@app.command("plugins", short_help="List connectors and their configuration.")
def plugins_command(
    *,
    name: Annotated[
        str | None,
        typer.Argument(help="Only this one; anything connector.class takes.", show_default=False),
    ] = None,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """List connectors with their configuration reference."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.plugins import show_plugins

        show_plugins(name, as_json=as_json)


@app.command("demo", short_help="Watch an archive being written, interrupted and checked.")
def demo_command(*, verbose: Verbose = False) -> None:
    """Archive 336,776 real records to an S3 in this process, interrupt it, and check the archive.

    Takes under a minute and leaves nothing behind. Needs the packages of sinksdk[all].
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.demo import demo

        demo(verbose=verbose)


# -- connectors, through the store: from any machine that reaches it -----------------------------------


@app.command("list", short_help="List connectors.")
def list_command(*, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False) -> None:
    """List connectors: type, state, tasks, lag (of sinks), records per second, and who drives them."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.status import show_connectors

        show_connectors(store, as_json=as_json)


@app.command("status", short_help="Show a connector, its tasks and partitions.")
def status_command(
    *, name: Name, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
) -> None:
    """Show a connector: its tasks, its partitions with commit, end, lag and rate, and the last errors.

    Of a source: what its tasks have committed, and how far they have read their source partitions.
    """
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.status import show_status

        show_status(store, name, as_json=as_json)


def _asking(action: str, what: str) -> None:
    """Add a command that only writes a request."""

    def command(
        *, name: Name, store: KeptIn = DEFAULT_STORE, as_json: AsJson = False, verbose: Verbose = False
    ) -> None:
        with exit_on_error(verbose=verbose):
            from sinksdk.cli.control import ask

            ask(store, name, action, as_json=as_json)

    command.__doc__ = f"{what} The connector's driver sees it within a second or two."
    app.command(action, short_help=what)(command)


_asking("pause", "Close what runs, and read nothing until it is resumed.")
_asking("resume", "Let a paused or stopped connector run again.")
_asking("stop", "As pause; offsets may be altered then.")
_asking("rebalance", "Flush, commit, and assign the work anew.")
_asking("flush", "Commit everything there now, tails and open transactions included.")


@app.command("restart", short_help="Stop a connector and start it again.")
def restart_command(
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
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import ask

        ask(store, name, "restart", only_failed=only_failed, as_json=as_json)


@app.command("delete", short_help="Delete a connector, and what it has outside.")
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
    store: KeptIn = DEFAULT_STORE,
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


offsets_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode=None, help="Show, alter or reset what is committed."
)
app.add_typer(offsets_app, name="offsets")


@offsets_app.command("show")
def show_offsets_command(
    *,
    name: Name,
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
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
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
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
    topic_directory: TargetDirectory = "",
    bootstrap_servers: TargetServers = "",
    kafka_config: KafkaConfig = "",
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Forget everything that is committed, of a connector that is stopped."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.offsets import reset_offsets
        from sinksdk.cli.source import SourceOptions

        topics = SourceOptions(topic_directory, bootstrap_servers, kafka_config)
        reset_offsets(store, name, topics, as_json=as_json)


config_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Show or replace a configuration.")
app.add_typer(config_app, name="config")


@config_app.command("get")
def get_config_command(
    *,
    name: Name,
    store: KeptIn = DEFAULT_STORE,
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
    store: KeptIn = DEFAULT_STORE,
    as_json: AsJson = False,
    verbose: Verbose = False,
) -> None:
    """Replace a connector's configuration; what runs closes, commits, and begins again with it."""
    with exit_on_error(verbose=verbose):
        from sinksdk.cli.control import set_config

        set_config(store, name, file, as_json=as_json)
