"""``sinksdk server``: all connectors of a store, and Kafka Connect's REST interface, in one process."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from sinksdk.cli.display import PlainProgress
from sinksdk.cli.output import stdout, write
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.errors import ConnectException
from sinksdk.launch.idle import sink_to_alter, source_target
from sinksdk.launch.patience import patiently
from sinksdk.launch.prepare import Place, prepare_server
from sinksdk.launch.spark import SparkOnDemand
from sinksdk.runtime.worker import Worker
from sinksdk.settings.references import ConfigProviders
from sinksdk.support.logs import LogSettings, configure_logging

log = logging.getLogger(__name__)

_LOOK: Final = 0.1  # seconds between checks for a signal
_HOW_TO_ALLOW: Final = "whoever starts the server allows it with --config-env or --config-files"


@dataclass(frozen=True, slots=True)
class RestOptions:
    """Where the REST interface listens, and what it accepts.

    Args:
        credentials: a file of tokens, and of users with passwords.
        allowed_hosts: names by which it may be asked for, besides localhost and addresses.
        config_env: environment variables that configurations may refer to, as shell patterns.
        config_files: folders with files that configurations may refer to.
    """

    host: str
    port: int
    credentials: Path | None = None
    allowed_hosts: Sequence[str] = ()
    config_env: Sequence[str] = ()
    config_files: Sequence[Path] = ()


def serve(place: Place, options: RestOptions, logs: LogSettings) -> None:
    """Run until a signal comes; then everything is flushed, committed and closed.

    Args:
        logs: how this process logs, and all tasks.

    Raises:
        ConfigException: something is wrong with the options; nothing was started.
        ConnectException: the port is taken; or connectors did not end in time and were left behind.
    """
    # What comes over REST refers to nothing that is not allowed here.
    providers = ConfigProviders(options.config_env, options.config_files, _HOW_TO_ALLOW)
    open_deployment = prepare_server(place, providers)
    configure_logging(logs)
    from sinksdk.server.rest import RestServer  # noqa: PLC0415 - an extra, which is there by now

    console, left = stdout(), list[str]()
    rest = RestServer(options.host, options.port, options.credentials, options.allowed_hosts)
    with ShutdownSignals() as signals, ExitStack() as after, rest:

        def begin() -> tuple[SparkOnDemand, Worker, str]:
            deployment = open_deployment()
            after.callback(deployment.store.close)
            spark = SparkOnDemand(
                deployment,
                "server",
                python_path=(str(Path.cwd()),),
                logs=logs,
                is_stopping=lambda: signals.is_received,  # running generations continue, and are flushed
                tell=lambda line: write(console, line, "dim"),
            )
            worker = Worker(
                deployment.store,
                lambda name: deployment.worker(name, spark, PlainProgress(log.info, interval=math.inf)),
            )
            rest.serve(
                deployment.store,
                providers,
                targets=partial(source_target, deployment.topics, providers=providers),
                sinks=partial(sink_to_alter, deployment.topics, providers=providers),
                places=spark.places,
            )
            return spark, worker, deployment.store.url

        begun = patiently(begin, "the server", lambda: signals.is_received, tell=rest.waits)
        if begun is not None:
            spark, worker, url = begun
            with spark:
                write(console, f"http://{options.host}:{options.port} · store {url}", "bold")
                run = threading.Thread(target=lambda: left.extend(worker.run()), name="worker", daemon=True)
                run.start()
                while signals.received is None:
                    time.sleep(_LOOK)
                write(console, f"{signals.received.name}: closing (a second signal stops at once)")
                worker.close()
                run.join()
    if left:
        message = f"these connectors did not end and were left behind: {', '.join(left)}"
        raise ConnectException(message)
    write(console, "stopped")
