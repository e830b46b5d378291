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
from typing import TYPE_CHECKING, Final

from sinksdk.cli.output import stdout, write
from sinksdk.cli.plain import PlainProgress
from sinksdk.cli.signals import ShutdownSignals
from sinksdk.cli.source import SourceOptions
from sinksdk.control.sink_offsets import opened_sink
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.launch.deployment import Deployment
from sinksdk.launch.idle import source_target
from sinksdk.launch.patience import patiently
from sinksdk.launch.prepare import Place, prepare_server
from sinksdk.launch.spark import SparkOnDemand
from sinksdk.launch.spark_options import SparkOptions
from sinksdk.launch.topics import sink_source
from sinksdk.runtime.backoff import in_words
from sinksdk.runtime.worker import Worker
from sinksdk.runtime.worker_connector import WorkerConnector
from sinksdk.settings.references import ConfigProviders
from sinksdk.spark.places import LookAtPlaces
from sinksdk.store import identify
from sinksdk.support.logs import LogSettings, configure_logging

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

    from sinksdk.store.reports import Waiting

log = logging.getLogger(__name__)

_LOOK: Final = 0.1  # seconds between looks whether a signal came
_HOW_TO_ALLOW: Final = "whoever starts the server allows it with --config-env or --config-files"
_START: Final = 10.0  # seconds until the port must be open


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """What the command line said.

    Args:
        source: where records come from.
        store: the store's URL.
        master: Spark's master URL; None: what Spark's own configuration says.
        host: address to listen at.
        port: port to listen at.
        credentials: a file of tokens, and of users with passwords.
        allowed_hosts: names by which it may be asked, besides localhost and addresses.
        config_env: environment variables that configurations may refer to, as shell patterns.
        config_files: folders with files that configurations may refer to.
        logs: how it logs, and its tasks do.
        spark_conf: Spark's own settings.
        places: how many tasks run at the same time on a local master; None: more than it has cores.
    """

    source: SourceOptions
    store: str
    master: str | None
    host: str
    port: int
    credentials: Path | None
    allowed_hosts: Sequence[str]
    config_env: Sequence[str]
    config_files: Sequence[Path]
    logs: LogSettings
    spark_conf: Sequence[str] = ()
    places: int | None = None

    @property
    def providers(self) -> ConfigProviders:
        """What configurations may refer to that come over REST: nothing that is not allowed here."""
        return ConfigProviders(self.config_env, self.config_files, _HOW_TO_ALLOW)


def serve(options: ServerOptions) -> None:
    """Run until a signal comes; then everything is flushed, committed and closed.

    Raises:
        ConfigException: something is wrong with the options; nothing was started.
        ConnectException: the port is taken; or connectors did not end in time and were left behind.
    """
    spark = SparkOptions(options.master, options.spark_conf, is_shared=True, places=options.places)
    opening = prepare_server(Place(options.source.topics, options.store, spark), options.providers)
    configure_logging(options.logs)
    rest = RestServer(options)
    with ShutdownSignals() as signals, ExitStack() as after, rest:

        def begin() -> Deployment:
            deployment = opening()
            after.callback(deployment.store.close)
            identify(deployment.store)
            return deployment

        found = patiently(begin, "the server", lambda: signals.received is not None, tell=rest.waits)
        left = _serve(found, rest, options, signals) if found is not None else []
    if left:
        message = f"these connectors did not end and were left behind: {', '.join(left)}"
        raise ConnectException(message)
    write(stdout(), "stopped")


def _serve(
    deployment: Deployment, rest: RestServer, options: ServerOptions, signals: ShutdownSignals
) -> list[str]:
    console = stdout()
    spark = SparkOnDemand(
        deployment,
        "server",
        python_path=(str(Path.cwd()),),
        logs=options.logs,
        is_stopping=lambda: signals.received is not None,  # what runs goes on, and is flushed
        tell=lambda line: write(console, line, "dim"),
    )

    def connector(name: str) -> WorkerConnector:
        return deployment.worker(name, spark, PlainProgress(log.info, interval=math.inf))

    worker, left = Worker(deployment.store, connector), list[str]()
    with spark:
        rest.serve(deployment, spark.places)
        write(console, f"http://{options.host}:{options.port} · store {deployment.store.url}", "bold")
        thread = threading.Thread(target=lambda: left.extend(worker.run()), name="worker", daemon=True)
        thread.start()
        while signals.received is None:
            time.sleep(_LOOK)
        write(console, f"{signals.received.name}: closing (a second signal stops at once)")
        worker.close()
        thread.join()
    return left


class RestServer:
    """The REST interface, in a thread of its own, while the block runs.

    Until :meth:`serve` it says that it waits for its store.

    Raises:
        ConfigException: it would listen beyond this machine without credentials.
        ConnectException: the port is taken.
    """

    def __init__(self, options: ServerOptions) -> None:
        import uvicorn  # noqa: PLC0415 - an extra

        from sinksdk.server.auth import Credentials, is_loopback  # noqa: PLC0415 - needs starlette, of that extra
        from sinksdk.server.waiting import create_waiting_app  # noqa: PLC0415 - needs fastapi, of that extra

        credentials = Credentials.read(options.credentials) if options.credentials else None
        if credentials is None and not is_loopback(options.host):
            raise ConfigException(
                f"{options.host} is reachable from elsewhere: name a file of credentials with --credentials, "
                f"or listen at 127.0.0.1"
            )
        # Who has no credentials is told from another site's page by the name he asks for.
        hosts = options.allowed_hosts if credentials is None or options.allowed_hosts else None
        self._providers, self._credentials, self._hosts = options.providers, credentials, hosts
        self._waiting: Waiting | None = None
        self._app: ASGIApp = create_waiting_app(lambda: _why(self._waiting), credentials, hosts=hosts)
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            host=options.host,
            port=options.port,
            access_log=False,
            log_config=None,  # its log lines go where ours go, without secrets
        )
        self._server = uvicorn.Server(config)
        self._address = f"{options.host}:{options.port}"
        self._thread = threading.Thread(target=self._server.run, name="rest", daemon=True)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def waits(self, waiting: Waiting | None) -> None:
        """What the server waits for before it can serve anything."""
        self._waiting = waiting

    def serve(self, deployment: Deployment, places: LookAtPlaces) -> None:
        """From now on handle the connectors of its store. Raises StoreUnavailable."""
        from sinksdk.server.app import create_app  # noqa: PLC0415 - needs fastapi, of an extra

        self._app = create_app(
            deployment.store,
            self._credentials,
            hosts=self._hosts,
            providers=self._providers,
            targets=partial(source_target, deployment.topics, providers=self._providers),
            sinks=partial(
                opened_sink, source=partial(sink_source, deployment.topics), providers=self._providers
            ),
            places=places,
        )

    def __enter__(self) -> None:
        self._thread.start()
        give_up = time.monotonic() + _START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > give_up:
                message = f"nothing can listen at {self._address}: is the port taken?"
                raise ConnectException(message)
            time.sleep(_LOOK / 10)

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()


def _why(waiting: Waiting | None) -> str:
    """What a server says that serves nothing yet."""
    if waiting is None:
        return "The server is opening its store."
    return f"The server waits for its store, {in_words(waiting)}"
