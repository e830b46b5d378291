"""Layers between a client and its server that spoil what passes: one for S3 over HTTP, one for any TCP.

For S3, :class:`FaultProxy` stands before moto, in its server. It drops requests, drops answers of what
has taken effect, answers with errors, waits, forgets conditions: the n-th request that changes
something, the next ones of an operation, or all of them. And it makes up for what moto gets wrong:
completing an upload is atomic per key, and an upload that is gone is ``NoSuchUpload``.

For everything else, :class:`TcpProxy` passes bytes on, and cuts connections before a request gets to
the server, or after it took effect and before the answer.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final
from urllib.parse import parse_qs

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from tests.s3_archiver.faulty_s3 import PROBES, App, Environ, StartResponse, cut, operation_of, refuse

# -- S3 ----------------------------------------------------------------------------------------------

_CONDITIONS: Final = {"If-Match": "HTTP_IF_MATCH", "If-None-Match": "HTTP_IF_NONE_MATCH"}


@dataclass(frozen=True)
class Fault:
    """What becomes of one request.

    Args:
        status: answered instead of the real one; None with ``cuts`` false lets the real one through.
        code: S3's error code in that answer.
        cuts: the connection is closed without an answer.
        takes_effect: whether the request reaches S3 all the same.
        delay: seconds before anything else.
        forgets_condition: the request loses its If-Match and If-None-Match.
        then: called once the request has been served, before its answer is.
    """

    status: int | None = None
    code: str = ""
    cuts: bool = False
    takes_effect: bool = False
    delay: float = 0.0
    forgets_condition: bool = False
    then: Callable[[], None] | None = None

    @property
    def is_answered_truly(self) -> bool:
        """Whether the client gets S3's own answer."""
        return self.status is None and not self.cuts


DROP_REQUEST: Final = Fault(cuts=True)
"""It never arrives; the connection is closed."""
DROP_ANSWER: Final = Fault(cuts=True, takes_effect=True)
"""It takes effect; the connection is closed without an answer."""
SLOW_DOWN: Final = Fault(503, "SlowDown")
CONFLICT: Final = Fault(409, "ConditionalRequestConflict")
INTERNAL_ERROR: Final = Fault(500, "InternalError")
INTERNAL_ERROR_AFTER: Final = Fault(500, "InternalError", takes_effect=True)
"""S3 says that it failed, and has done it."""
FORGET_CONDITION: Final = Fault(forgets_condition=True)
"""What an S3 does that does not know conditional requests and does not say so."""
NOT_IMPLEMENTED: Final = Fault(501, "NotImplemented")


@dataclass(frozen=True)
class Request:
    """One request that came.

    Args:
        operation: S3's name of it.
        path: ``/bucket/key``, decoded.
        condition: ``If-Match`` or ``If-None-Match`` where it had one.
        fault: what became of it, None when nothing did.
    """

    operation: str
    path: str
    condition: str
    fault: Fault | None


def anything(request: Request) -> bool:
    """Every request."""
    return True


@dataclass
class FaultProxy:
    """A WSGI application before another one that speaks S3. Thread-safe.

    Of the faults that were asked for, one of the n-th mutation comes before the next of an operation,
    and that before a lasting one.
    """

    app: App
    requests: list[Request] = field(default_factory=list)
    """Everything that came, in order."""
    _nth: dict[int, Fault] = field(default_factory=dict)
    _next: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    _lasting: list[tuple[Callable[[Request], bool], Fault]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _mutations: int = 0

    @property
    def mutations(self) -> int:
        """How many requests came that change something (PUT, POST, DELETE), since the start or a reset."""
        return self._mutations

    def at_mutation(self, number: int, fault: Fault) -> None:
        """Spoil the ``number``-th mutation from now, from 1."""
        with self._lock:
            self._nth[self._mutations + number] = fault

    def next(self, operation: str, *faults: Fault) -> None:
        """Spoil the next requests of an operation, in this order."""
        with self._lock:
            self._next[operation].extend(faults)

    def always(self, fault: Fault, which: Callable[[Request], bool] = anything) -> None:
        """Spoil all requests that are such, until :meth:`reset`."""
        with self._lock:
            self._lasting.append((which, fault))

    def reset(self) -> None:
        """Spoil nothing more, and forget what came."""
        with self._lock:
            self.requests.clear()
            self._nth.clear()
            self._next.clear()
            self._lasting.clear()
            self._mutations = 0

    def operations(self) -> list[str]:
        """Operations of everything that came."""
        return [request.operation for request in self.requests]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        fault = self._fault_of(environ)
        if fault is None:
            return self.app(environ, start_response)
        time.sleep(fault.delay)
        if fault.forgets_condition:
            for header in _CONDITIONS.values():
                environ.pop(header, None)
        if fault.is_answered_truly:
            answer = list(self.app(environ, start_response))
            if fault.then:
                fault.then()
            return answer
        if fault.takes_effect:
            list(self.app(environ, lambda *_: None))
        else:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        if fault.then:
            fault.then()
        if fault.cuts:
            cut(environ)
        return refuse(environ, start_response, fault.status or 500, fault.code)

    def _fault_of(self, environ: Environ) -> Fault | None:
        seen = Request(
            operation_of(environ),
            environ["PATH_INFO"],
            next((name for name, header in _CONDITIONS.items() if header in environ), ""),
            None,
        )
        with self._lock:
            nth = None
            if environ["REQUEST_METHOD"] in {"PUT", "POST", "DELETE"}:
                self._mutations += 1
                nth = self._nth.pop(self._mutations, None)
            waiting = None if PROBES in seen.path else self._next[seen.operation]
            fault = nth or (waiting.popleft() if waiting else None) or self._lasting_fault(seen)
            self.requests.append(replace(seen, fault=fault))
        return fault

    def _lasting_fault(self, request: Request) -> Fault | None:
        return next((fault for which, fault in self._lasting if which(request)), None)


@dataclass
class TrueToS3:
    """Moto, where S3 differs: what S3 does atomically is done one after the other, per key.

    A conditional CompleteMultipartUpload of moto looks, and then writes: of several at the same time
    more than one can win. And parts of an upload that is gone are answered 500, which clients retry.
    """

    app: App
    _locks: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))
    _guard: threading.Lock = field(default_factory=threading.Lock)
    _gone: set[str] = field(default_factory=set)

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if environ["REQUEST_METHOD"] not in {"PUT", "POST", "DELETE"}:
            return self.app(environ, start_response)
        with self._guard:
            lock = self._locks[environ["PATH_INFO"]]
        upload = parse_qs(environ["QUERY_STRING"]).get("uploadId", [""])[0]
        operation = operation_of(environ)
        if operation == "UploadPart":  # the one that is large, and conflicts with nothing
            return self._of_upload(upload, environ, start_response)
        with lock:
            if operation == "AbortMultipartUpload":
                self._gone.add(upload)
                return list(self.app(environ, start_response))
            return list(self._of_upload(upload, environ, start_response))

    def _of_upload(self, upload: str, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        if upload and upload in self._gone:
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return refuse(environ, start_response, 404, "NoSuchUpload")
        return self.app(environ, start_response)


class _Quiet(WSGIRequestHandler):
    """Logs no requests."""

    def log(self, *_: Any) -> None:
        """Say nothing."""


def spoilable_moto() -> FaultProxy:
    """The proxy before moto, for a server of one's own; other layers may stand before it."""
    return FaultProxy(TrueToS3(DomainDispatcherApplication(create_backend_app)))


@contextmanager
def serving_s3(app: App | None = None) -> Iterator[tuple[str, FaultProxy]]:
    """Moto, or another application, behind the proxy, on a free port of this machine: its address, and the proxy.

    Moto keeps its buckets as long as the process lives: name them uniquely.
    """
    proxy = FaultProxy(app) if app else spoilable_moto()
    server = make_server("127.0.0.1", 0, proxy, threaded=True, request_handler=_Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", proxy
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# -- TCP ---------------------------------------------------------------------------------------------

PATIENCE: Final = 60.0  # seconds until a proxy gives up waiting for an answer

CUT_BEFORE: Final = "before"
"""The request does not get to the server."""
CUT_AFTER: Final = "after"
"""It does, and is answered; the answer does not get to the client."""
PASS: Final = "pass"
"""Nothing happens to it: for the n-th request, n - 1 of these come first."""
SILENCE: Final = "silence"
"""It does, and the client hears nothing more, on a connection that stays open."""


@dataclass
class TcpProxy:
    """Passes bytes on between its port and a server's, and cuts where it is told.

    Args:
        server: address of the real server.
    """

    server: tuple[str, int]
    connections: int = 0
    """How many were opened."""
    is_refusing: bool = False
    """Whether new connections are closed at once."""
    spoiled: list[bytes] = field(default_factory=list)
    """Every request that something happened to."""
    _plans: list[tuple[re.Pattern[bytes], str]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _open: set[socket.socket] = field(default_factory=set)
    _listening: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        """Where it listens, on the loopback interface."""
        return int(self._listening.getsockname()[1])

    def spoil(self, pattern: bytes, *how: str) -> None:
        """Spoil the next requests in whose bytes this regular expression is found, in this order.

        Bytes as they come, at most 64 KiB at a time: look for what stands at a small request's beginning.
        """
        with self._lock:
            self._plans += [(re.compile(pattern, re.DOTALL), each) for each in how]

    def reset(self) -> None:
        """Spoil nothing more, and forget what was."""
        with self._lock:
            self._plans.clear()
            self.spoiled.clear()

    def cut_all(self) -> None:
        """Close all connections now, as a server does that is restarted."""
        with self._lock:
            for end in list(self._open):
                _shut(end)

    def serve(self) -> None:
        """Accept until the port is closed."""
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            self.connections += 1
            if self.is_refusing:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and all connections."""
        _shut(self._listening)
        self._listening.close()
        self.cut_all()

    def _pass_on(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(self.server)
        except OSError:
            client.close()
            return
        with closing(client), closing(server):
            with self._lock:
                self._open |= {client, server}
            back = _Back(server, client)
            back.start()
            self._requests(client, server, back)
            back.join()
            with self._lock:
                self._open -= {client, server}

    def _requests(self, client: socket.socket, server: socket.socket, back: _Back) -> None:
        with suppress(OSError):
            while data := client.recv(65536):
                how = self._plan_of(data)
                if how == CUT_BEFORE:
                    break
                if how is not None:
                    back.is_muted = True
                server.sendall(data)
                if how == CUT_AFTER:
                    back.swallowed.wait(PATIENCE)
                    break
        _shut(client)
        _shut(server)

    def _plan_of(self, data: bytes) -> str | None:
        with self._lock:
            for plan in self._plans:
                if plan[0].search(data):
                    self._plans.remove(plan)
                    if plan[1] == PASS:
                        return None
                    self.spoiled.append(data)
                    return plan[1]
        return None


class _Back(threading.Thread):
    """Passes on what the server says; once muted, swallows it."""

    def __init__(self, server: socket.socket, client: socket.socket) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._client = client
        self.is_muted = False
        self.swallowed = threading.Event()

    def run(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(65536):
                if self.is_muted:
                    self.swallowed.set()
                else:
                    self._client.sendall(data)
        self.swallowed.set()
        if not self.is_muted:
            _shut(self._client)


def _shut(end: socket.socket) -> None:
    with suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)


@contextmanager
def serving_tcp(port: int) -> Iterator[TcpProxy]:
    """A proxy before a server on this machine."""
    proxy = TcpProxy(("127.0.0.1", port))
    thread = threading.Thread(target=proxy.serve, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.stop()
        thread.join()
