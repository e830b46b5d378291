"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sinksdk.cli import control_app
from sinksdk.cli.options import (
    DEFAULT_STORE,
    BootstrapServers,
    Conf,
    KafkaConfig,
    LogFormat,
    LogFormats,
    Master,
    SourceDirectory,
    StoreUrl,
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
def run_command(
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
        from sinksdk.cli.run import RunOptions, run
        from sinksdk.cli.source import SourceOptions

        source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
        logs = log_settings(
            log_format, verbose=verbose, level="INFO" if log_format is LogFormats.JSON else "WARNING"
        )
        run(RunOptions(config, source, store, master, until_caught_up, logs, conf or ()))


@app.command("server", short_help="Run all connectors of a store, with Kafka Connect's REST interface.")
def server_command(
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
        from sinksdk.cli.server import ServerOptions, serve
        from sinksdk.cli.source import SourceOptions

        source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
        serve(
            ServerOptions(
                source,
                store,
                master,
                host,
                port,
                credentials,
                allowed_hosts=allowed_host or (),
                config_env=config_env or (),
                config_files=config_files or (),
                logs=log_settings(log_format, verbose=verbose, level="INFO"),
                spark_conf=conf or (),
                places=places,
            )
        )


@app.command("validate", short_help="Check a configuration.")
def validate_command(
    *,
    config: Config,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
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
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
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


control_app.add_to(app)
