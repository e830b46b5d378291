"""Moto behind a layer that injects faults, over real HTTP."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
App = Callable[[Environ, StartResponse], Iterable[bytes]]

# Part of the path of each request with which a start tests the endpoint.
PROBES = "/_sinksdk/probes/"


@dataclass(frozen=True)
class Spoiled:
    """What happens to one request.

    Args:
        operation: as in :func:`operation_of`.
        status: the response's status instead of the real one; None cuts the connection.
        code: S3's error code in that response.
        takes_effect: whether the request reaches S3 nevertheless.
    """

    operation: str
    status: int | None = None
    code: str = ""
    takes_effect: bool = False


@dataclass
class Seen:
    operation: str
    headers: dict[str, str]
    size: int


@dataclass
class FaultyS3:
    app: App
    spoiled: list[Spoiled] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        operation = operation_of(environ)
        headers = {k[5:].replace("_", "-").lower(): v for k, v in environ.items() if k.startswith("HTTP_")}
        self.seen.append(Seen(operation, headers, int(environ.get("CONTENT_LENGTH") or 0)))
        fault = next((fault for fault in self.spoiled if fault.operation == operation), None)
        if fault is None:
            return self.app(environ, start_response)
        self.spoiled.remove(fault)
        if fault.takes_effect:
            list(self.app(environ, lambda *_: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault.status is None:
            cut(environ)
        return refuse(environ, start_response, fault.status, fault.code)

    def spoil(self, operation: str, **what: Any) -> None:
        self.spoiled.append(Spoiled(operation, **what))

    def operations(self) -> list[str]:
        return [seen.operation for seen in self.seen]


class Throttling:
    """A layer that answers 503 SlowDown to requests beyond a rate; thread-safe.

    Args:
        app: the application behind it.
        per_second: requests per second, which is also the largest burst.
    """

    def __init__(self, app: App, per_second: int) -> None:
        self._app = app
        self._per_second = per_second
        self._lock = threading.Lock()
        self._room, self._seen = float(per_second), time.monotonic()
        self.let_through: Counter[str] = Counter()
        """Requests by operation."""

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        with self._lock:
            now = time.monotonic()
            self._room = min(self._room + (now - self._seen) * self._per_second, self._per_second)
            self._seen = now
            is_let_through = self._room >= 1
            if is_let_through:
                self._room -= 1
                self.let_through[operation_of(environ)] += 1
        if is_let_through:
            return self._app(environ, start_response)
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        return refuse(environ, start_response, 503, "SlowDown")


def cut(environ: Environ) -> NoReturn:
    # werkzeug takes this exception for a client that has closed its connection.
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def refuse(environ: Environ, start_response: StartResponse, status: int, code: str) -> Iterable[bytes]:
    body = f"<Error><Code>{code}</Code><Message>spoiled</Message></Error>".encode()
    start_response(f"{status} Spoiled", [("Content-Length", str(len(body)))])
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]


def operation_of(environ: Environ) -> str:
    method, query = environ["REQUEST_METHOD"], environ["QUERY_STRING"]
    is_bucket = re.fullmatch(r"/[^/]+/?", environ["PATH_INFO"]) is not None
    if "uploadId=" in query:
        names = {"PUT": "UploadPart", "POST": "CompleteMultipartUpload", "DELETE": "AbortMultipartUpload"}
        return names.get(method, "ListParts")
    if "uploads" in query:
        return "CreateMultipartUpload" if method == "POST" else "ListMultipartUploads"
    if "tagging" in query:
        return "PutObjectTagging"
    return {
        "GET": "List" if is_bucket else "GetObject",
        "HEAD": "HeadBucket" if is_bucket else "HeadObject",
        "DELETE": "DeleteObject",
    }.get(method, "PutObject")


@contextmanager
def serving(app: App | None = None) -> Iterator[tuple[str, FaultyS3]]:
    layer = FaultyS3(app or DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, layer, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", layer
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
