"""The REST interface on a port, in a separate thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from sinksdk.control.sink_offsets import Sinks
from sinksdk.control.source_offsets import Targets
from sinksdk.errors import ConfigException, ConnectException
from sinksdk.runtime.backoff import in_words
from sinksdk.server.app import create_app, create_waiting_app
from sinksdk.server.middleware import Credentials, is_loopback
from sinksdk.settings.references import ConfigProviders
from sinksdk.spark.places import LookAtPlaces
from sinksdk.store import Store
from sinksdk.store.reports import Waiting

_LOOK: Final = 0.01  # seconds between checks whether the port is open
_START: Final = 10.0  # seconds until the port must be open


class RestServer:
    """Answers while the block runs; until :meth:`serve` it says that it waits for its store.

    Args:
        credentials: a file of tokens, and of users with passwords.
        allowed_hosts: names by which it may be asked for, besides localhost and addresses.

    Raises:
        ConfigException: it would listen beyond this machine without credentials.
        ConnectException: the port is taken.
    """

    def __init__(
        self, host: str, port: int, credentials: Path | None = None, allowed_hosts: Sequence[str] = ()
    ) -> None:
        self._credentials = Credentials.read(credentials) if credentials else None
        if self._credentials is None and not is_loopback(host):
            raise ConfigException(
                f"{host} is reachable from elsewhere: name a file of credentials with --credentials, "
                f"or listen at 127.0.0.1"
            )
        # Without credentials another site's page is recognized by the name that it asks for.
        self._hosts = allowed_hosts if self._credentials is None or allowed_hosts else None
        self._waiting: Waiting | None = None
        self._app: ASGIApp = create_waiting_app(self._why, self._credentials, hosts=self._hosts)
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",
            host=host,
            port=port,
            access_log=False,
            log_config=None,  # its log lines go where ours go, without secrets
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, name="rest", daemon=True)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)

    def _why(self) -> str:
        if self._waiting is None:
            return "The server is opening its store."
        return f"The server waits for its store, {in_words(self._waiting)}"

    def waits(self, waiting: Waiting | None) -> None:
        """What the server waits for before it can serve anything."""
        self._waiting = waiting

    def serve(
        self,
        store: Store,
        providers: ConfigProviders,
        *,
        targets: Targets,
        sinks: Sinks,
        places: LookAtPlaces,
    ) -> None:
        """From now on handle the connectors of a store; as :func:`create_app`. Raises StoreUnavailable."""
        self._app = create_app(
            store,
            self._credentials,
            hosts=self._hosts,
            providers=providers,
            targets=targets,
            sinks=sinks,
            places=places,
        )

    def __enter__(self) -> None:
        self._thread.start()
        deadline = time.monotonic() + _START
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                config = self._server.config
                message = f"nothing can listen at {config.host}:{config.port}: is the port taken?"
                raise ConnectException(message)
            time.sleep(_LOOK)

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join()
