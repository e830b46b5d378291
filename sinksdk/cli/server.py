"""``sinksdk server``: runs all connectors of a store, with Kafka Connect's REST interface."""

from __future__ import annotations

import logging
import math
import threading
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from sinksdk.cli.display import PlainProgress
from sinksdk.cli.options import (
    DEFAULT_STORE,
    BootstrapServers,
    Conf,
    KafkaConfig,
    LogFormat,
    LogFormats,
    Master,
    SourceDirectory,
    SourceOptions,
    StoreUrl,
    Verbose,
    start_logging,
)
from sinksdk.cli.output import command, stdout, write
from sinksdk.cli.run import ShutdownSignals
from sinksdk.errors import ConnectException
from sinksdk.launch.idle import sink_to_alter, source_target
from sinksdk.launch.prepare import prepare_server
from sinksdk.launch.spark import SparkOnDemand
from sinksdk.launch.startup import retry_until_available
from sinksdk.runtime.connect_worker import ConnectWorker
from sinksdk.settings.references import ConfigProviders

log = logging.getLogger(__name__)

_POLL: Final = 0.1  # seconds between checks for a signal
_QUIET: Final = 60.0  # seconds between two log lines of a connector without failures
_HOW_TO_ALLOW: Final = "start the server with --config-env or --config-files to allow it"


@command
def server(
    *,
    source_directory: SourceDirectory = "",
    bootstrap_servers: BootstrapServers = "",
    kafka_config: KafkaConfig = "",
    store: StoreUrl = DEFAULT_STORE,
    master: Master = None,
    task_slots: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Task slots of a local master: tasks of all connectors that run at the same time; four per "
            "core by default.",
        ),
    ] = None,
    conf: Conf = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on.")] = 8083,
    credentials: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Accepted credentials: one token or USER:PASSWORD per line. Required if other machines can "
            "reach the port.",
        ),
    ] = None,
    allowed_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="A host name by which clients address this server, for example that of a proxy; may be "
            "repeated.",
        ),
    ] = None,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDRESS",
            help="Address or network of a proxy whose X-Forwarded-For names the client; may be repeated.",
        ),
    ] = None,
    config_env: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Environment variables that configurations may reference as ${env:NAME}, for example "
            "'SINK_*'; may be repeated.",
        ),
    ] = None,
    config_files: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Folder with files that configurations may reference as ${file:/path:key}; may be repeated.",
        ),
    ] = None,
    config_sql: Annotated[
        bool,
        typer.Option(
            "--config-sql",
            help="Let 'records.sql' read any table and file that Spark reaches, call Java methods and run "
            "commands; by default it reads 'records' only.",
        ),
    ] = False,
    log_format: LogFormat = LogFormats.TEXT,
    verbose: Verbose = False,
) -> None:
    """Run all connectors of a store in one process, with Kafka Connect's REST interface.

    Connectors are created, changed and deleted through REST or by the other commands. Connectors that another
    process drives are left to it. Stopping flushes and commits partial batches.
    """
    source = SourceOptions(source_directory, bootstrap_servers, kafka_config)
    options = source.deployment(store, master=master, conf=conf or (), is_shared=True, task_slots=task_slots)
    # Configurations that arrive over REST may reference only what these options allow.
    providers = ConfigProviders(config_env or (), config_files or (), _HOW_TO_ALLOW, sql=config_sql)
    open_deployment = prepare_server(options, providers)
    logs = start_logging(log_format, verbose=verbose, level="INFO")
    _raise_file_limit()
    from sinksdk.server.app import create_app  # noqa: PLC0415 - prepare_server has checked for the extra
    from sinksdk.server.rest import RestServer  # noqa: PLC0415 - as above

    console, left = stdout(), list[str]()
    rest = RestServer(host, port, credentials, allowed_host or (), trusted_proxies=trusted_proxy or ())
    with ShutdownSignals() as signals, ExitStack() as after, rest:

        def begin() -> tuple[SparkOnDemand, ConnectWorker, str]:
            deployment = open_deployment()
            after.callback(deployment.store.close)
            spark = SparkOnDemand(
                deployment,
                "server",
                python_path=(str(Path.cwd()),),
                logs=logs,
                is_stopping=lambda: signals.is_received,  # running generations are flushed, not cancelled
                report=lambda line: write(console, line, "dim"),
            )
            worker = ConnectWorker(
                deployment.store,
                lambda name: deployment.worker(
                    name, spark, PlainProgress(log.info, interval=math.inf, quiet=_QUIET)
                ),
            )
            rest.serve(
                lambda credentials, hosts: create_app(
                    deployment.store,
                    credentials,
                    hosts=hosts,
                    providers=providers,
                    targets=partial(source_target, deployment.topics, providers=providers),
                    sinks=partial(sink_to_alter, deployment.topics, providers=providers),
                    task_slots=spark.task_slots,
                )
            )
            return spark, worker, deployment.store.url

        started = retry_until_available(
            begin, "the server", lambda: signals.is_received, report=rest.show_waiting
        )
        if started is not None:
            spark, worker, url = started
            with spark:
                write(console, f"http://{host}:{port} · store {url}", "bold")
                run = threading.Thread(target=lambda: left.extend(worker.run()), name="worker", daemon=True)
                run.start()
                while signals.received is None:
                    time.sleep(_POLL)
                write(console, f"{signals.received.name}: closing (a second signal stops at once)")
                worker.close()
                run.join()
    if left:
        raise ConnectException(f"these connectors did not stop in time and were abandoned: {', '.join(left)}")
    write(console, "stopped")


def _raise_file_limit() -> None:
    # 30 connectors on Kafka hold some 700 descriptors, and the soft limit is often 1,024.
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    log.info("raised the limit of open files from %d to %d", soft, wanted)


_OPEN_FILES: Final = 65_536
