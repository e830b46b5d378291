"""An in-process S3 endpoint that stops responding at chosen requests."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final, NamedTuple, Self
from urllib.parse import parse_qs

import boto3
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import make_server

REGION: Final = "us-east-1"
ACCESS_KEY: Final = "demo"
SECRET_KEY: Final = "demo"  # noqa: S105 - of a server that lives for a minute and takes any

_PATIENCE: Final = 60.0  # seconds until a stalled part is accepted in any case


class Stall(NamedTuple):
    """The part, from 1, of the object with this end of its key that gets no response."""

    key_end: str
    part: int


class S3Endpoint:
    """Serves S3 on a free port of 127.0.0.1 in a ``with`` block; stalled parts wait for :meth:`resume`."""

    on_stalled: Callable[[], None]
    """Called from a thread of the server once all stalled parts wait."""

    def __init__(self, stalls: Collection[Stall]) -> None:
        self._stalls = frozenset(stalls)
        self.on_stalled = lambda: None
        self._waiting: set[Stall] = set()
        self._lock = threading.Lock()
        self._is_resumed = threading.Event()
        self._s3 = DomainDispatcherApplication(create_backend_app)
        logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line per request otherwise
        self._server = make_server(
            "127.0.0.1", 0, self._serve, threaded=True, request_handler=MotoRequestHandler
        )
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.resume()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def create_bucket(self, bucket: str) -> None:
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=ACCESS_KEY,
            aws_secret_access_key=SECRET_KEY,
        )
        client.create_bucket(Bucket=bucket)
        client.close()

    def resume(self) -> None:
        """Respond to stalled requests, and to all later ones."""
        self._is_resumed.set()

    def _serve(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        stall = self._stall_of(environ)
        if stall is not None and not self._is_resumed.is_set():
            self._wait(stall)
        response: Iterable[bytes] = self._s3(environ, start_response)
        return response

    def _stall_of(self, environ: dict[str, Any]) -> Stall | None:
        if environ["REQUEST_METHOD"] != "PUT":
            return None
        part = parse_qs(environ["QUERY_STRING"]).get("partNumber")
        name = environ["PATH_INFO"].rpartition("/")[2]
        found = Stall(name, int(part[0])) if part else None
        return found if found in self._stalls else None

    def _wait(self, stall: Stall) -> None:
        with self._lock:
            self._waiting.add(stall)
            is_last = self._waiting == self._stalls
        if is_last:
            self.on_stalled()
        self._is_resumed.wait(_PATIENCE)
